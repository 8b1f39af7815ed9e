# What a package does with running helpers. No session ends by any of this. Part of each package's own scripts.

# The uids of the user managers that run.
cgleaf_managers() {
    systemctl --no-legend --quiet list-units --state=active 'user@*.service' 2>/dev/null |
        sed -n 's/.*user@\([0-9][0-9]*\)\.service.*/\1/p'
}

# Installed or upgraded: managers learn of it, users' sockets listen at once, running helpers become the new ones.
cgleaf_units_installed() {
    [ -d /run/systemd/system ] || return 0
    systemctl --quiet daemon-reload || true
    systemctl --quiet try-restart 'cgleaf-helper@*.service' cgleaf-helper-node.service || true
    for uid in $(cgleaf_managers); do
        systemctl --quiet --user --machine="$uid@" daemon-reload || continue
        if systemctl --quiet --user --machine="$uid@" is-enabled cgleaf-helper.socket 2>/dev/null; then
            systemctl --quiet --user --machine="$uid@" start cgleaf-helper.socket || true
        fi
        systemctl --quiet --user --machine="$uid@" try-restart cgleaf-helper.service || true
    done
}

# About to be removed: helpers and sockets end. An administrator's instances are taken out of the boot too.
cgleaf_units_removing() {
    [ -d /run/systemd/system ] || return 0
    for uid in $(cgleaf_managers); do
        systemctl --quiet --user --machine="$uid@" stop cgleaf-helper.socket cgleaf-helper.service || true
    done
    for instance in $(systemctl --no-legend --quiet list-units --all --plain 'cgleaf-helper@*' | cut -d' ' -f1); do
        systemctl --quiet disable --now "$instance" 2>/dev/null || systemctl --quiet stop "$instance" || true
    done
    systemctl --quiet disable --now cgleaf-helper-node.socket 2>/dev/null || true
    systemctl --quiet stop cgleaf-helper-node.service 2>/dev/null || true
}

# Removed: sockets' folders go, and what an administrator enabled where no systemd ran to disable it.
cgleaf_units_removed() {
    rm -f /etc/systemd/system/sockets.target.wants/cgleaf-helper@*.socket \
        /etc/systemd/system/sockets.target.wants/cgleaf-helper-node.socket
    rmdir /run/cgleaf/node /run/cgleaf/[0-9]* /run/cgleaf 2>/dev/null || true
    [ -d /run/systemd/system ] || return 0
    systemctl --quiet daemon-reload || true
    for uid in $(cgleaf_managers); do
        systemctl --quiet --user --machine="$uid@" daemon-reload || true
    done
}
