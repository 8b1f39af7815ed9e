# Sourced by matrix: one function for each environment. It runs the suite there with so many tries ($1), prints what the suite prints, and
# ends with its status; 77 and a last line of words where the environment cannot be had. $work/bin holds the static programs.
# shellcheck shell=bash disable=SC2154,SC2034

quick=(here guest_252_user kernel_5_10 docker_default)
all=(
    here here_user here_user_delegated
    guest_252_user guest_252_session guest_252_root guest_252_service guest_252_service_delegated guest_252_no_manager
    guest_247_user guest_247_session guest_257_user guest_257_session
    kernel_5_10 kernel_6_1 kernel_6_12 kernel_newest kernel_6_1_user kernel_6_1_hybrid kernel_6_1_v1 kernel_6_1_no_cgroup
    docker_default docker_host_cgroupns docker_writable docker_writable_bind docker_init docker_user docker_read_only
    docker_never_reaps docker_refusing_seccomp docker_refusing_seccomp_group kubernetes kubernetes_node
    podman_rootless
)
full=(disk_247 disk_252 disk_257)

expected_tier() {
    case $1 in
    # Its user has a manager, but a service of the system lies outside of what that one may move.
    guest_252_service | guest_252_no_manager) echo group ;;
    here_user | kernel_6_1_user | kernel_6_1_v1 | kernel_6_1_no_cgroup) echo group ;;
    docker_writable | docker_writable_bind | docker_refusing_seccomp | kubernetes_node) echo cgroup ;;
    docker_* | kubernetes | podman_rootless) echo group ;;
    *) echo cgroup ;;
    esac
}

down_all() {
    "$here/guest" -d "$work/guest" down
    CGLEAF_DOCKER_DIR=$work/docker "$here/docker" down
}

not_here() {
    echo "$*"
    exit 77
}

# This machine, as it is: no systemd as its manager. A directory that somebody with the right to has made.
here_scope() {
    scope=$(cgroup2_mount)/cgleaf-matrix-$$
    mkdir "$scope"
    mkdir -m 700 "$work/runtime"
    # A matrix that fails must not leave a member behind.
    trap 'for d in $(find "$scope" -type d); do for p in $(cat "$d/cgroup.procs"); do kill -KILL "$p"; done; done; remove_cgroup "$scope"; rm -rf "$work/runtime"' EXIT
}
environment_here() {
    here_scope
    XDG_RUNTIME_DIR=$work/runtime CGLEAF_SCOPE_DIR=$scope PATH=$work/bin:$PATH suite "$1"
}
# A user, who has no manager, in a cgroup that is not his.
environment_here_user() {
    here_scope
    as_user_here "$1"
}
# The same where root made one for him and put his shell into it.
environment_here_user_delegated() {
    here_scope
    chown -R 1000:1000 "$scope"
    as_user_here "$1"
}
as_user_here() {
    chown 1000:1000 "$work/runtime"
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$scope" setpriv --reuid 1000 --regid 1000 --clear-groups \
        env XDG_RUNTIME_DIR="$work/runtime" HOME="$work/runtime" PATH="$work/bin:$PATH" suite "$1"
}

# HOW-IT-IS-CALLED TRIES ROOT OPTIONS…
in_guest() {
    local how=$1 tries=$2 root=$3
    shift 3
    [ "$root" = / ] || root=$("$here/fetch-root" "$root") || not_here "no such root file system from this machine's mirror"
    trap '"$here/guest" -d "$work/guest" down' EXIT
    "$here/guest" -d "$work/guest" up --root "$root" --bind "$work/bin:/opt/cgleaf" "$@"
    local status=0
    case $how in
    service) "$here/guest" -d "$work/guest" enter -- systemd-run --quiet --collect --pipe --wait -p User=lab -- \
        sh -c "PATH=/opt/cgleaf:\$\$PATH exec suite $tries" || status=$? ;;
    delegated_service) "$here/guest" -d "$work/guest" enter -- systemd-run --quiet --collect --pipe --wait -p User=lab --unit=runner \
        -p Delegate=yes -p Environment=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/runner.service -- \
        sh -c "PATH=/opt/cgleaf:\$\$PATH exec suite $tries" || status=$? ;;
    *) "$here/guest" -d "$work/guest" "$how" -- sh -c "PATH=/opt/cgleaf:\$PATH exec suite $tries" || status=$? ;;
    esac
    return "$status"
}
environment_guest_252_user() { in_guest user "$1" /; }
environment_guest_252_session() { in_guest session "$1" /; }
environment_guest_252_root() { in_guest root "$1" /; }
# What a CI runner is: a system service without delegation, running as a user that has a manager.
environment_guest_252_service() { in_guest service "$1" /; }
# What doctor advises then.
environment_guest_252_service_delegated() { in_guest delegated_service "$1" /; }
# Where that user has no manager.
environment_guest_252_no_manager() { in_guest service "$1" / --no-linger; }
environment_guest_247_user() { in_guest user "$1" bullseye; }
environment_guest_247_session() { in_guest session "$1" bullseye; }
environment_guest_257_user() { in_guest user "$1" trixie; }
environment_guest_257_session() { in_guest session "$1" trixie; }

# SUITE-OF-DEBIAN TRIES HOW KERNEL-WORDS…
in_kernel() {
    local suite=$1 tries=$2 how=$3 kernel
    shift 3
    kernel=$("$here/fetch-kernels" "$suite" | cut -d ' ' -f 3) && [ -n "$kernel" ] || not_here "no kernel of $suite from this machine's mirror"
    # Emulated: a link that lives a third of a millisecond would leave nothing to anyone else, PID 1 that reaps included.
    printf '#!/bin/sh\nexport SUITE_PERIOD=3000 SUITE_BOMB=40\n%s\n' "$how" | sed "s/TRIES/$tries/" >"$work/script"
    "$here/make-initramfs" "$work/initramfs" "$work/script" "$work"/bin/*
    "$here/boot-kernel" --timeout 3000 --append "$*" "$kernel" "$work/initramfs"
}
as_root='exec suite TRIES'
as_user='exec su lab -c "exec suite TRIES"'
environment_kernel_5_10() { in_kernel bullseye "$1" "$as_root"; }
environment_kernel_6_1() { in_kernel bookworm "$1" "$as_root"; }
environment_kernel_6_12() { in_kernel trixie "$1" "$as_root"; }
environment_kernel_newest() { in_kernel trixie-backports "$1" "$as_root"; }
environment_kernel_6_1_user() { in_kernel bookworm "$1" "$as_user"; }
environment_kernel_6_1_hybrid() { in_kernel bookworm "$1" "$as_root" LAB_LAYOUT=hybrid; }
environment_kernel_6_1_v1() { in_kernel bookworm "$1" "$as_root" LAB_LAYOUT=v1; }
environment_kernel_6_1_no_cgroup() { in_kernel bookworm "$1" "$as_root" LAB_LAYOUT=none; }

docker_up() {
    export CGLEAF_DOCKER_DIR=$work/docker
    trap '"$here/docker" down' EXIT
    "$here/docker" up || not_here "docker does not start on this machine"
    "$here/docker" image cgleaf-matrix "$work"/bin/*
}
# TRIES OPTIONS…
in_docker() {
    docker_up
    in_container "$@"
}
in_container() {
    local tries=$1
    shift
    "$here/docker" cli run --rm --network none "$@" cgleaf-matrix suite "$tries"
}
environment_docker_default() { in_docker "$1"; }
environment_docker_host_cgroupns() { in_docker "$1" --cgroupns=host; }
environment_docker_init() { in_docker "$1" --init; }
environment_docker_user() { in_docker "$1" --user 1000; }
environment_docker_read_only() { in_docker "$1" --read-only --tmpfs /tmp --tmpfs /run; }
# A container that may write its own cgroup namespace: processes already sit in its root.
environment_docker_writable() {
    docker_up
    "$here/docker" cli run --rm --network none --cap-add SYS_ADMIN cgleaf-matrix \
        sh -c "mount -o remount,rw /sys/fs/cgroup && exec suite $1"
}
environment_docker_writable_bind() { in_docker "$1" --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw; }
# A first process that reaps nothing: orphans stay zombies for good.
environment_docker_never_reaps() {
    docker_up
    "$here/docker" cli run --detach --name never-reaps --network none cgleaf-matrix sleepers /tmp/first 0 0
    "$here/docker" cli exec never-reaps suite "$1"
}
# An outer filter that knows none of the newer calls, where a leaf can be had all the same, and where not.
refusing_seccomp() {
    cat >"$work/seccomp.json" <<'S'
{ "defaultAction": "SCMP_ACT_ALLOW",
  "syscalls": [ { "names": ["openat2", "name_to_handle_at", "pidfd_open", "clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 } ] }
S
}
environment_docker_refusing_seccomp() {
    refusing_seccomp
    docker_up
    "$here/docker" cli run --rm --network none --cap-add SYS_ADMIN --security-opt "seccomp=$work/seccomp.json" cgleaf-matrix \
        sh -c "mount -o remount,rw /sys/fs/cgroup && exec suite $1"
}
environment_docker_refusing_seccomp_group() {
    refusing_seccomp
    in_docker "$1" --security-opt "seccomp=$work/seccomp.json"
}
# A development workspace under kubernetes' default options: only its home and /tmp can be written.
workspace=(--user 1000 --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp --tmpfs /home/lab:uid=1000,mode=700)
environment_kubernetes() { in_docker "$1" "${workspace[@]}"; }
# The same with the directory of a node service's socket, and nothing else more.
environment_kubernetes_node() {
    docker_up
    mkdir -m 755 "$work/node"
    "$here/docker" cli run --detach --name node --network none --pid host --cgroupns host --user 0:0 --cap-drop ALL \
        --security-opt no-new-privileges --read-only -v "$work/node:/run/cgleaf/node" -v /sys/fs/cgroup:/sys/fs/cgroup:rw cgleaf-matrix \
        cgleaf-helper --mode node-service --socket /run/cgleaf/node/helper.sock
    wait_until 30 test -S "$work/node/helper.sock"
    in_container "$1" "${workspace[@]}" -v "$work/node:/run/cgleaf/node:ro"
}

# Rootless, in a guest, by its user: Debian's podman and crun from the cache, one uid mapped, no image but a folder.
environment_podman_rootless() {
    local tree
    tree=$("$here/fetch-debs" podman podman crun conmon) || not_here "no podman from this machine's mirror"
    mkdir -p "$work/podman/rootfs"
    busybox_tree "$work/podman/rootfs" "$work"/bin/*
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec /opt/podman/usr/bin/crun "$@"\n' /opt/podman/usr/lib/x86_64-linux-gnu >"$work/podman/crun"
    cat >"$work/podman/script" <<S
#!/bin/sh
export PATH=/opt/podman/usr/bin:\$PATH LD_LIBRARY_PATH=/opt/podman/usr/lib/x86_64-linux-gnu
mkdir -p ~/.config/containers
printf '[storage]\ndriver="vfs"\n' >~/.config/containers/storage.conf
cat >~/.config/containers/containers.conf <<C
[engine]
conmon_path=["/opt/podman/usr/bin/conmon"]
runtime="crun"
events_logger="none"
cgroup_manager="systemd"
[engine.runtimes]
crun=["/opt/lab/crun"]
C
cp -r /opt/lab/rootfs ~/rootfs
# The guest has no pids controller where the machine is hybrid.
exec podman run --rm --network none --pids-limit -1 --rootfs ~/rootfs suite $1
S
    chmod 755 "$work/podman/crun" "$work/podman/script"
    trap '"$here/guest" -d "$work/guest" down' EXIT
    "$here/guest" -d "$work/guest" up --bind "$tree:/opt/podman" --bind "$work/podman:/opt/lab"
    # The kernel lets a user namespace mount proc and sysfs only where an uncovered one is in sight; the guest's are covered in part.
    "$here/guest" -d "$work/guest" enter -- sh -c \
        'mkdir -p /run/seen/proc /run/seen/sys && mount -t proc proc /run/seen/proc && mount -t sysfs sysfs /run/seen/sys'
    "$here/guest" -d "$work/guest" user -- /opt/lab/script
}

# DEBIAN-SUITE KERNEL-SUITE TRIES: as a program of its user's manager, which is what a terminal's programs are.
in_disk() {
    local root kernel
    root=$("$here/fetch-root" "$1") || not_here "no $1 from this machine's mirror"
    kernel=$("$here/fetch-kernels" "$2" | cut -d ' ' -f 3) && [ -n "$kernel" ] || not_here "no kernel of $2 from this machine's mirror"
    printf '#!/bin/sh\nexport SUITE_PERIOD=3000 SUITE_BOMB=40\nexec /as-lab systemd-run --user --scope --quiet suite %s\n' "$3" >"$work/script"
    "$here/make-disk" "$work/disk" "$root" "$work/script" "$work"/bin/*
    "$here/boot-disk" --timeout 3000 "$kernel" "$work/disk"
}
environment_disk_247() { in_disk bullseye bullseye "$1"; }
environment_disk_252() { in_disk bookworm bookworm "$1"; }
environment_disk_257() { in_disk trixie trixie "$1"; }
