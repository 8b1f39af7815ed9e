# Sourced by every script of the lab.
# shellcheck shell=bash

# Everything that is downloaded or built from downloads lies here, never in the source tree.
# shellcheck disable=SC2034
lab_cache=${CGLEAF_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cgleaf-lab}

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# The comment block at the top of the script is its manual.
usage() {
    awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0" >&2
    exit 2
}

need_root() { [ "$(id -u)" = 0 ] || die "needs root"; }

need_tool() {
    local tool
    for tool; do
        command -v "$tool" >/dev/null || die "needs the program '$tool'"
    done
}

# Where this machine has cgroup2: /sys/fs/cgroup, or /sys/fs/cgroup/unified beside cgroup v1.
cgroup2_mount() {
    local mount
    mount=$(awk '$(NF-2) == "cgroup2" { print $5; exit }' /proc/self/mountinfo)
    [ -n "$mount" ] || die "this machine has no cgroup2 mount"
    printf '%s\n' "$mount"
}

# The base address of the mirror that this machine's apt already uses, without the distribution's own folder.
apt_mirror() {
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | sed -n 's,/debian/*$,,p' | head -n 1)
    [ -n "$mirror" ] || die "apt has no Debian mirror configured"
    printf '%s\n' "$mirror"
}

# The sources.list lines of a Debian suite at that mirror. NAME-backports needs no security suite.
suite_sources() {
    local suite=$1 mirror keyring='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
    mirror=$(apt_mirror)
    echo "deb $keyring $mirror/debian $suite main"
    case $suite in
    *-backports) ;;
    *) echo "deb $keyring $mirror/debian-security $suite-security main" ;;
    esac
}

# Waits until COMMAND succeeds; fails after SECONDS. For things that tell nobody when they are ready.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

# Removes a cgroup and everything beneath it. Processes that were just killed hold it for a moment.
remove_cgroup() {
    local top=$1 try
    for try in $(seq 250); do
        [ -d "$top" ] || return 0
        find "$top" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ ! -d "$top" ] || sleep 0.02
    done
    [ ! -d "$top" ] || die "cgroup $top is still there after $try tries; in it: $(cat "$top"/cgroup.procs 2>/dev/null | tr '\n' ' ')"
}

# Lays out in DIR a root file system of a static busybox, root, "lab" (uid 1000) and FILE[:PLACE]…, for images that have no loader.
busybox_tree() {
    local dir=$1 busybox=/bin/busybox applet file place
    shift
    [ -x "$busybox" ] || busybox=$("$(dirname "${BASH_SOURCE[0]}")/fetch-debs" busybox busybox-static)/bin/busybox
    chmod 755 "$dir"
    mkdir -p "$dir"/{bin,etc,proc,sys,dev,tmp,run,root,home/lab}
    chmod 1777 "$dir/tmp"
    cp "$busybox" "$dir/bin/busybox"
    for applet in $("$busybox" --list); do
        case $applet in busybox) ;; *) ln -s busybox "$dir/bin/$applet" ;; esac
    done
    printf 'root:x:0:0::/root:/bin/sh\nlab:x:1000:1000::/home/lab:/bin/sh\n' >"$dir/etc/passwd"
    printf 'root:x:0:\nlab:x:1000:\n' >"$dir/etc/group"
    chown 1000:1000 "$dir/home/lab"
    for file; do
        place=/bin/$(basename "${file%%:*}")
        case $file in *:*) place=${file#*:} ;; esac
        mkdir -p "$dir/$(dirname "$place")"
        # What stands there may be a link to busybox.
        rm -f "$dir/$place"
        cp -r "${file%%:*}" "$dir/$place"
    done
}
