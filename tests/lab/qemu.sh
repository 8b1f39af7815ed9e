# Sourced by boot-kernel and boot-disk, with $memory, $timeout and $cpus set.
# shellcheck shell=bash disable=SC2154

qemu=(qemu-system-x86_64)
if ! command -v qemu-system-x86_64 >/dev/null; then
    "$here/fetch-debs" qemu qemu-system-x86 >/dev/null
    tree=$lab_cache/debs/qemu/usr/share
    qemu=("$here/with-debs" qemu qemu-system-x86_64 -L "$tree/qemu" -L "$tree/seabios")
fi

# Shows the serial line as it comes and returns what the line "LAB exit N" says. qemu ends with this script, however that ends.
run_qemu() {
    local status=0 said
    # Not local: the traps outlive this function.
    log=$(mktemp)
    nice timeout --foreground --kill-after=10 "$timeout" "${qemu[@]}" -accel tcg -cpu max -m "$memory" -smp "$cpus" -M q35 -nodefaults \
        -no-user-config -display none -serial stdio -no-reboot "$@" </dev/null >"$log" 2>&1 &
    emulator=$!
    trap 'kill "$emulator" 2>/dev/null || true; rm -f "$log"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    tail --pid="$emulator" --lines=+1 --follow "$log" | sed -u 's,\r$,,' &
    wait "$emulator" || status=$?
    wait
    said=$(sed -n 's/^LAB exit \([0-9]*\)\r*$/\1/p' "$log" | tail -n 1)
    if [ -n "$said" ]; then return "$said"; fi
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        echo "${0##*/}: the guest did not power off within $timeout s" >&2
        return 124
    fi
    echo "${0##*/}: the guest ended without saying an exit status" >&2
    return 125
}
