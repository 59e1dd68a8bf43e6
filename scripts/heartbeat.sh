# Lines every half a minute that say what a script is doing, for scripts that source this file.
#
#   heartbeat TEXT        from here on the lines are TEXT and the time since here
#   heartbeat FUNCTION    from here on the lines are what the function prints
#   end_heartbeat         no more of them; before the script's end
#   minutes SECONDS       prints a time

heartbeat_pid=

minutes() {
    if [ "$1" -lt 60 ]; then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

heartbeat() {
    end_heartbeat
    local what=$1
    (
        began=$SECONDS
        # (A pipe behind the script must not wait for the last sleep.)
        while sleep "${HEARTBEAT:-30}" >/dev/null 2>&1; do
            if [ "$(type -t "$what")" = function ]; then
                line=$("$what")
            else
                line="$what, $(minutes $((SECONDS - began)))"
            fi
            printf -- '-- %s %s\n' "$(date +%H:%M:%S)" "$line"
        done
    ) </dev/null 9>&- &
    heartbeat_pid=$!
}

end_heartbeat() {
    [ -z "$heartbeat_pid" ] || kill "$heartbeat_pid" 2>/dev/null || true
    heartbeat_pid=
}
