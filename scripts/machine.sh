# The machine as tests of mounts want it, for scripts that source this file.
#
#   machine_for_tests     as root: requests over io_uring where the kernel offers it (its switch is
#                         off by default), and /dev/fuse open to all users (as udev has it)
#   machine_as_before     undoes that; before the script's end

machine_undo=()

machine_for_tests() {
    [ "$(id -u)" -eq 0 ] || return 0
    local switch=/sys/module/fuse/parameters/enable_uring
    modprobe fuse 2>/dev/null || true
    if [ -w "$switch" ]; then
        machine_undo+=("echo $(cat "$switch") >$switch")
        echo Y >"$switch"
    fi
    if [ -c /dev/fuse ]; then
        machine_undo+=("chmod $(stat -c %a /dev/fuse) /dev/fuse")
        chmod 666 /dev/fuse
    fi
}

machine_as_before() {
    local command
    for command in "${machine_undo[@]}"; do eval "$command"; done
    machine_undo=()
}
