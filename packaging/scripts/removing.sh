# About to be removed: helpers and sockets end, sessions do not. An administrator's instances are taken out of the boot too.
cgleaf_removing() {
    [ -d /run/systemd/system ] || return 0
    systemctl --no-legend --plain list-units --state=active 'user@*.service' | sed -n 's/^user@\([0-9]*\)\.service.*/\1/p' |
        while read -r uid; do
            systemctl --quiet --user --machine="$uid@" stop cgleaf-helper.socket cgleaf-helper.service </dev/null || true
        done
    systemctl --no-legend --plain list-units --all 'cgleaf-helper@*' 'cgleaf-helper-node.*' | sed 's/ .*//' |
        while read -r unit; do
            systemctl --quiet disable --now "$unit" </dev/null 2>/dev/null || true
        done
}
