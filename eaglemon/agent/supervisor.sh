# Starts one server, outlives the connection and records its end; see host.sh. Its settings stand
# before it: head (the record without its end, as JSON), workdir, exports (a function), and the
# command as the positional parameters.

unset EAGLEMON_JOB
folder=$EAGLEMON_FOLDER
unset EAGLEMON_FOLDER
cd / || exit 1
umask 077
em_ticks() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
em_write() { printf '%s' "$2" > "$folder/$1.$$.tmp" && mv -f "$folder/$1.$$.tmp" "$folder/$1"; }
em_record() {
  em_write run.json "$head\"launched_at\":$launched_at,\"log_path\":\"$folder/server.log\",\"pid\":$1,\"start_ticks\":$2,\"spawn_error\":$3,\"supervisor\":{\"pid\":$$,\"start_ticks\":$(em_ticks $$)}}"
}
em_now() {
  now_s=$(date +%s.%N)
  case $now_s in *[!0-9.]* | *.) date +%s ;; *) printf '%s\n' "${now_s%???}" ;; esac
}
launched_at=$(em_now)
# Handlers, not "ignored": that would stay so in the server.
trap : HUP INT
em_record null null null
em_exports
failed=
case $workdir in
  '') cd 2>/dev/null || cd / || exit 1 ;;
  '~') cd || failed="cannot enter the working folder ~" ;;
  '~/'*) cd "$HOME/${workdir#'~/'}" 2>/dev/null || failed="cannot enter the working folder" ;;
  *) cd "$workdir" 2>/dev/null || failed="cannot enter the working folder" ;;
esac
case $1 in '~/'*) first=$HOME/${1#'~/'}; shift; set -- "$first" "$@" ;; esac
if [ -z "$failed" ] && ! command -v -- "$1" >/dev/null 2>&1; then
  failed="cannot execute the command: no such program"
fi
if [ -n "$failed" ]; then
  em_record null null "\"$failed\""
  : > "$folder/started"
  exit 1
fi
: >> "$folder/server.log"
setsid "$@" >> "$folder/server.log" 2>&1 </dev/null &
pid=$!
em_record "$pid" "$(em_ticks "$pid")" null
: > "$folder/started"
while :; do
  wait "$pid"
  status=$?
  # A signal that was handled here ends the wait too.
  [ -d "/proc/$pid" ] || break
done
code=$status; signal=null; reason=null
# The shell has only one number for both: 143 may be TERM, or a server that chose this code.
if [ "$status" -gt 128 ]; then
  name=$(kill -l $((status - 128)) 2>/dev/null)
  [ -n "$name" ] && {
    signal="\"SIG${name#SIG}\""; code=null
    reason="\"SIG${name#SIG}, or exit code $status\""
  }
fi
em_write exit.json "{\"code\":$code,\"signal\":$signal,\"at\":$(em_now),\"reason\":$reason}"
