# Installed or upgraded: service managers learn of it, users' sockets listen at once, running helpers become the new ones. No session
# ends by that. Not deb-systemd-invoke(1p) and the like: they know neither an administrator's instances nor `try-restart`.
cgleaf_installed() {
    [ -d /run/systemd/system ] || return 0
    systemctl --quiet daemon-reload || true
    systemctl --quiet try-restart 'cgleaf-helper@*.service' cgleaf-helper-node.service || true
    # Every user manager that runs.
    systemctl --no-legend --plain list-units --state=active 'user@*.service' | sed -n 's/^user@\([0-9]*\)\.service.*/\1/p' |
        while read -r uid; do
            systemctl --quiet --user --machine="$uid@" daemon-reload </dev/null || continue
            if systemctl --quiet --user --machine="$uid@" is-enabled cgleaf-helper.socket </dev/null 2>/dev/null; then
                systemctl --quiet --user --machine="$uid@" start cgleaf-helper.socket </dev/null || true
            fi
            systemctl --quiet --user --machine="$uid@" try-restart cgleaf-helper.service </dev/null || true
        done
}
