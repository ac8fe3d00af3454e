# Ends all processes of one run and writes the account; see host.sh, whose functions stand before
# it, with the settings grace (seconds, for the account) and grace_cs (hundredths of a second).

unset EAGLEMON_JOB
folder=$EAGLEMON_FOLDER
cd / || exit 1
trap : HUP INT
requested=$(em_now); term_at=null; terms=0; kill_at=null; kills=0; gone=null; left=; pids=
em_account() {
  printf '{"requested_at":%s,"grace_s":%s,"term_sent_at":%s,"term_count":%s,"kill_sent_at":%s,"kill_count":%s,"gone_at":%s,"left":[%s],"pids":[%s],"error":null}' \
    "$requested" "$grace" "$term_at" "$terms" "$kill_at" "$kills" "$gone" "$left" "${pids#,}" \
    > "$folder/stop.json.$$.tmp" && mv -f "$folder/stop.json.$$.tmp" "$folder/stop.json"
}
em_line "$folder/run.json"; record=$line
em_pids "$record"
em_left() { em_members "$leader" "$leader_ticks" "$folder/server.log" "$supervisor"; }
# Hundredths of a second since the machine was started: no clock that is set goes into a grace.
em_uptime() { read -r up rest < /proc/uptime; cs=$((${up%.*} * 100 + 1${up#*.} - 100)); }
# Signals each process that is still the one that was looked at; counts them in sent.
em_signal() {
  sent=0
  # One that was forked a moment ago is told by nothing else, and the driver may list it.
  while read -r pid ticks rest; do
    [ -n "$pid" ] && [ "$(em_ticks "$pid")" = "$ticks" ] || continue
    case "$pids," in *",$pid,"*) ;; *) pids=$pids,$pid ;; esac
    kill "-$1" "$pid" 2>/dev/null && sent=$((sent + 1))
  done <<LIST
$2
LIST
}
em_line /proc/sys/kernel/random/boot_id
case $record in *"$line"*) members=$(em_left) ;; *) members= ;; esac
em_account
if [ -n "$members" ]; then
  term_at=$(em_now); em_uptime; began=$cs
  em_signal TERM "$members"; terms=$sent
  em_account
  while members=$(em_left); em_uptime; [ -n "$members" ] && [ $((cs - began)) -lt "$grace_cs" ]; do
    em_nap 0.2
  done
fi
if [ -n "$members" ]; then
  kill_at=$(em_now); began=$(date +%s)
  while [ -n "$members" ]; do
    em_signal KILL "$members"; [ "$kills" = 0 ] && kills=$sent
    em_account
    em_nap 0.3
    members=$(em_left)
    if [ $(($(date +%s) - began)) -gt 10 ] && [ -n "$members" ]; then
      left=$(printf '%s\n' "$members" | cut -d' ' -f1 | tr '\n' ','); left=${left%,}
      em_account
      [ $(($(date +%s) - began)) -gt 600 ] && exit 0
      sleep 2
      members=$(em_left); left=
    fi
  done
fi
gone=$(em_now)
# A full disk passes, and the account is told once it has.
tries=0
until em_account; do
  tries=$((tries + 1)); [ "$tries" -lt 600 ] || exit 1
  rm -f "$folder/stop.json.$$.tmp"; sleep 1
done
