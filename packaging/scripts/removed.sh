# Removed: the sockets' folders go, and what an administrator enabled where no systemd ran that could have disabled it.
cgleaf_removed() {
    rm -f /etc/systemd/system/sockets.target.wants/cgleaf-helper@*.socket \
        /etc/systemd/system/sockets.target.wants/cgleaf-helper-node.socket
    rmdir /run/cgleaf/node /run/cgleaf/[0-9]* /run/cgleaf 2>/dev/null || true
    [ -d /run/systemd/system ] || return 0
    systemctl --quiet daemon-reload || true
    systemctl --no-legend --plain list-units --state=active 'user@*.service' | sed -n 's/^user@\([0-9]*\)\.service.*/\1/p' |
        while read -r uid; do
            systemctl --quiet --user --machine="$uid@" daemon-reload </dev/null || true
        done
}
