# What eaglemon does on a host without python3: plain sh with awk and nvidia-smi.
#
# The console sends this file to "sh -s" with assignments before it and one call behind it.
# Blocks of an answer end with GS (\035), their parts are set apart by US (\037). Streams send a
# line feed each round and end with stdin, or when a write fails.
# Run folders are those of docs/agent-protocol.md, so that a python agent can go on with them.

umask 077
LC_ALL=C
export LC_ALL
US=$(printf '\037')
GS=$(printf '\035')

em_state() {
  case ${XDG_STATE_HOME:-} in
    /*) state=$XDG_STATE_HOME/eaglemon; usual=$state; return ;;
  esac
  if [ ! -d "${HOME:-}" ]; then  # a shell without a locale (fish) spoils its letters
    home=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6)
    case $home in *[!\ -~]*) [ -d "$home" ] && { HOME=$home; export HOME; } ;; esac
  fi
  usual=${HOME:-/}/.local/state/eaglemon
  state=$usual
  if ! mkdir -p "$usual" 2>/dev/null || [ ! -w "$usual" ]; then
    other=/var/tmp/eaglemon-$(id -u)
    if mkdir -p "$other" 2>/dev/null && [ -O "$other" ] && [ ! -L "$other" ]; then
      state=$other
    fi
  fi
}

# Descendants of process $1 without $2 and those below it, a line each: "pid ticks".
em_descendants() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$1" -v spared="$2" '
    { pid = $1; sub(/^.*\) /, ""); parent[pid] = $2; start[pid] = $20; order[++count] = pid }
    END {
      below[root] = 1
      do {
        grown = 0
        for (i = 1; i <= count; i++) {
          pid = order[i]
          if (!(pid in below) && parent[pid] in below && pid != spared) {
            below[pid] = 1; grown = 1; print pid, start[pid]
          }
        }
      } while (grown)
    }'
}

# Ends this shell and what it waits for: a nvidia-smi that hangs would stay for ever.
em_end() {
  trap '' TERM
  found=$(em_descendants $$ "$(exec sh -c 'echo "$PPID"')")
  kill -TERM $$
  for signal in TERM KILL; do
    printf '%s\n' "$found" | while read -r pid ticks; do
      [ -n "$pid" ] && [ "$(em_ticks "$pid")" = "$ticks" ] && kill "-$signal" "$pid"
    done
    em_nap 0.5
  done
}

# Runs a stream until it ends or stdin (handle 3) does: that is the end of the link.
em_stream() {
  ( cat <&3; em_end ) >/dev/null 2>&1 &
  watcher=$!
  trap 'kill "$watcher" 2>/dev/null' EXIT
  "$@"
}

# Unix seconds, to the microsecond where date(1) knows them.
em_now() {
  now_s=$(date +%s.%N)
  case $now_s in *[!0-9.]* | *.) date +%s ;; *) printf '%s\n' "${now_s%???}" ;; esac
}

em_clock() { printf '%s%s' "$(em_now)" "$GS"; }

em_nap() { sleep "$1" 2>/dev/null || sleep 1; }

em_ticks() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The first line of a file, without a process.
em_line() { line=; [ -f "$1" ] && { IFS= read -r line < "$1" || :; }; }

em_facts() {
  em_line /proc/sys/kernel/hostname; printf '%s%s' "$line" "$US"
  printf '%s%s%s%s' "$(id -un)" "$US" "$(id -u)" "$US"
  em_line /proc/sys/kernel/random/boot_id; printf '%s%s' "$line" "$US"
  printf '%s%s%s%s' "$state" "$US" "$usual" "$US"
  printf '%s%s' "$(grep -c '^processor' /proc/cpuinfo)" "$US"
  printf '%s%s' "$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)" "$US"
  for tool in setsid awk nvidia-smi; do
    command -v "$tool" >/dev/null 2>&1 && printf '%s ' "$tool"
  done
  printf '%s' "$GS"
}

# Sets leader, leader_ticks and supervisor from the text of a run.json in $1.
em_pids() {
  leader=; leader_ticks=; supervisor=
  case $1 in
    *'"pid":'*) rest=${1#*\"pid\":}; leader=${rest%%[,\}]*}; leader=${leader# } ;;
  esac
  case $1 in
    *'"start_ticks":'*)
      rest=${1#*\"start_ticks\":}; leader_ticks=${rest%%[,\}]*}; leader_ticks=${leader_ticks# } ;;
  esac
  case $1 in
    *'"supervisor":'*)
      rest=${1#*\"supervisor\":}; rest=${rest#*\"pid\":}
      supervisor=${rest%%[,\}]*}; supervisor=${supervisor# } ;;
  esac
  case $leader in *[!0-9]*) leader= ;; esac
  case $supervisor in *[!0-9]*) supervisor= ;; esac
}

# Living processes of the run whose leader, ticks and log are given: "pid ticks state cpu".
em_members() {
  { ls -l /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null | sed 's/^/F /'
    cat /proc/[0-9]*/stat 2>/dev/null
  } | awk -v leader="$1" -v ticks="$2" -v log_path="$3" -v spared="$4" '
    $1 == "F" {
      if ($NF == log_path || (index($0, " -> " log_path))) {
        split($0, piece, "/proc/"); split(piece[2], word, "/"); writes[word[1]] = 1
      }
      next
    }
    {
      pid = $1; sub(/^.*\) /, "")
      if ($1 == "Z" || $1 == "X") next
      state[pid] = $1; parent[pid] = $2; group[pid] = $3; session[pid] = $4
      cpu[pid] = $12 + $13; start[pid] = $20; order[++count] = pid
    }
    END {
      # A stranger under the leader pid: the old session is empty.
      ours = leader != "" && (!(leader in start) || start[leader] == ticks)
      for (i = 1; i <= count; i++) {
        pid = order[i]
        inside = ours && start[pid] >= ticks && (session[pid] == leader || group[pid] == leader)
        if ((inside || pid in writes) && pid != spared) member[pid] = 1
      }
      do {
        grown = 0
        for (i = 1; i <= count; i++) {
          pid = order[i]
          if (!(pid in member) && parent[pid] in member && pid != spared) {
            member[pid] = 1; grown = 1
          }
        }
      } while (grown)
      for (i = 1; i <= count; i++) {
        pid = order[i]
        if (pid in member) print pid, start[pid], state[pid], cpu[pid]
      }
    }'
}

em_command() { tr '\000' ' ' < "/proc/$1/cmdline" 2>/dev/null | tr -d '\001-\037'; }

em_runs() {
  last=
  em_line /proc/sys/kernel/random/boot_id; boot=$line
  while :; do
    now=
    # A folder that cannot be looked at (an NFS server gone) is not an empty one.
    [ -z "$last" ] || [ -d "$state/runs" ] || { em_nap "$interval"; continue; }
    for folder in "$state"/runs/*/; do
      # A folder without a record is one that is being made right now.
      [ -f "${folder}run.json" ] || continue
      em_line "${folder}run.json"; record=$line
      em_line "${folder}exit.json"; ended=$line
      em_line "${folder}stop.json"; stopped=$line
      size=; members=; there=
      case $record in *"$boot"*)
        em_pids "$record"
        # An ended run is looked at again while its process group still has a member.
        if [ -z "$ended" ] || kill -0 "-$leader" 2>/dev/null ||
          { [ -n "$stopped" ] && [ "${stopped#*\"gone_at\":*[0-9]}" = "$stopped" ]; }
        then
          members=$(em_members "$leader" "$leader_ticks" "${folder}server.log" "$supervisor" |
            while read -r pid ticks kind used; do
              printf '%s %s %s %s %s\n' "$pid" "$ticks" "$kind" "$used" "$(em_command "$pid")"
            done)
          [ -n "$supervisor" ] && [ -d "/proc/$supervisor" ] && there=yes
          size=$(wc -c < "${folder}server.log" 2>/dev/null)
        fi ;;
      esac
      now="$now$folder$US$record$US$ended$US$stopped$US$size$US$there$US$members$GS"
    done
    if [ "$now" != "$last" ] || [ -z "$first_told" ]; then
      printf '%s%s.%s' "$now" "$US" "$GS" || exit 0
      last=$now; first_told=yes
    fi
    printf '=%s' "$GS" || exit 0  # that it still answers
    em_nap "$interval"
  done
}

# Holds the lock of launches. One whose shell died with it, or hangs, is broken.
em_lock() {
  lock=$state/launch.lock.d; tries=0
  [ -w "$state" ] || return 0
  while ! mkdir "$lock" 2>/dev/null; do
    em_line "$lock/pid"
    if [ "$tries" -ge 100 ] || { [ -n "$line" ] && [ ! -d "/proc/$line" ]; }; then
      rm -rf "$lock"
    fi
    tries=$((tries + 1)); em_nap 0.1
  done
  printf '%s\n' "$$" > "$lock/pid"
}

em_unlock() { rm -rf "$lock"; }

# Tells which living run, of those that are not among $known, has the port or a GPU of a launch.
em_taken() {
  em_line /proc/sys/kernel/random/boot_id; boot=$line
  for other in "$state"/runs/*/; do
    name=${other%/}; name=${name##*/}
    case " $known " in *" $name "*) continue ;; esac
    em_line "${other}run.json"; record=$line
    case $record in *"$boot"*) ;; *) continue ;; esac
    em_pids "$record"
    if [ -n "$leader" ]; then kill -0 "-$leader" 2>/dev/null || continue
    else [ -n "$supervisor" ] && [ -d "/proc/$supervisor" ] || continue
    fi
    kind=; shared=
    case $record in
      *'"port": '"$port,"*) kind=port-in-use; what="port $port" ;;
      *'"gpu_indexes": ['*)
        rest=${record#*\"gpu_indexes\": \[}; rest=" ${rest%%\]*},"
        for one in $gpus; do
          case $rest in *" $one,"*) shared="$shared${shared:+, }$one" ;; esac
        done
        [ -n "$shared" ] && [ -z "$force" ] && { kind=gpu-in-use; what="GPU $shared"; } ;;
    esac
    [ -n "$kind" ] || continue
    printf '%s%s%s was just taken by %s, which was launched at the same time' \
      "$kind" "$US" "$what" "$name"
    return
  done
}

# Starts the supervisor with the job of $job in its environment, where only this user can read it.
em_start() {
  folder=$state/runs/$run_id
  mkdir -p "$state/runs" 2>/dev/null
  em_lock
  taken=; [ -z "$judged" ] || taken=$(em_taken)
  if [ -n "$taken" ]; then
    em_unlock; printf '%s%s' "$taken" "$GS"; return
  fi
  if ! mkdir "$folder" 2>/dev/null; then
    em_unlock
    [ -d "$folder" ] && { printf 'run-exists%s' "$GS"; return; }
    printf 'state-not-writable%s%s%s' "$US" "$folder" "$GS"; return
  fi
  EAGLEMON_JOB="$job" EAGLEMON_FOLDER="$folder" setsid sh -c 'eval "$EAGLEMON_JOB"' \
    eaglemon-supervisor </dev/null >/dev/null 2>&1 &
  tries=0
  while [ "$tries" -lt 100 ]; do
    # From its record on, the next launch sees this one.
    [ -z "$lock" ] || [ ! -f "$folder/run.json" ] || { em_unlock; lock=; }
    if [ -f "$folder/started" ]; then
      em_line "$folder/run.json"; rm -f "$folder/started"
      printf 'ok%s%s%s' "$US" "$line" "$GS"; return
    fi
    tries=$((tries + 1)); em_nap 0.1
  done
  [ -z "$lock" ] || em_unlock
  printf 'spawn-late%sthe supervisor has not answered yet%s' "$US" "$GS"
}

em_job() { EAGLEMON_JOB="$job" EAGLEMON_FOLDER="$state/runs/$run_id" setsid sh -c \
  'eval "$EAGLEMON_JOB"' "$role" </dev/null >/dev/null 2>&1 & }

em_stop() {
  [ -f "$state/runs/$run_id/run.json" ] || { printf 'no-such-run%s' "$GS"; return; }
  role=eaglemon-stopper; em_job
  tries=0
  while [ "$tries" -lt 100 ] && [ ! -f "$state/runs/$run_id/stop.json" ]; do
    tries=$((tries + 1)); em_nap 0.1
  done
  printf 'ok%s' "$GS"
}

em_forget() {
  [ -d "$state/runs/$run_id" ] || { printf 'no-such-run%s' "$GS"; return; }
  em_line "$state/runs/$run_id/run.json"; em_pids "$line"
  if [ -n "$(em_members "$leader" "$leader_ticks" "$state/runs/$run_id/server.log" "")" ]; then
    printf 'still-running%s' "$GS"; return
  fi
  rm -rf "$state/runs/$run_id" && printf 'ok%s' "$GS"
}

# Tells why the log $1 cannot be read, and fails, where it cannot. There is none before the start.
em_readable() {
  em_line "$state/runs/$run_id/run.json"; em_pids "$line"
  if [ ! -e "$1" ]; then
    [ -n "$leader" ] || [ -L "$1" ] || return 0
    printf 'log-missing%s%s' "$US" "$1"; return 1
  fi
  why=
  if [ -d "$1" ]; then why='it is a folder'
  elif [ ! -f "$1" ]; then why='it is no regular file'
  elif [ ! -r "$1" ]; then why='Permission denied'
  fi
  [ -z "$why" ] || { printf 'log-unreadable%s%s%s%s' "$US" "$1" "$US" "$why"; return 1; }
}

# A log from $offset on: "offset size restarted ended" and GS, then that many bytes.
em_log() {
  folder=$state/runs/$run_id
  [ -d "$folder" ] || { printf 'no-such-run%s' "$GS"; return; }
  trouble=$(em_readable "$folder/server.log") || { printf '%s%s' "$trouble" "$GS"; return; }
  printf 'ok%s' "$GS"
  while :; do
    trouble=$(em_readable "$folder/server.log") || { printf '\n%s%s' "$trouble" "$GS"; return; }
    em_line "$folder/run.json"; em_pids "$line"
    over=0
    if [ -f "$folder/exit.json" ]; then over=1
    elif [ -n "$leader" ] && [ "$(em_ticks "$leader")" != "$leader_ticks" ]; then
      [ -n "$supervisor" ] && [ -d "/proc/$supervisor" ] || over=1
    fi
    size=$(wc -c < "$folder/server.log" 2>/dev/null) || size=0
    size=$((size)); restarted=0
    if [ "$size" -lt "$offset" ]; then offset=0; restarted=1; fi
    length=$((size - offset))
    [ "$length" -gt 262144 ] && length=262144
    if [ "$length" -gt 0 ] || [ "$restarted" = 1 ] || [ "$over" = 1 ]; then
      ended=0; [ "$length" -eq 0 ] && ended=$over
      printf '\n%s %s %s %s%s' "$offset" "$length" "$restarted" "$ended" "$GS" || exit 0
      [ "$length" -gt 0 ] && tail -c "+$((offset + 1))" "$folder/server.log" | head -c "$length"
      offset=$((offset + length))
      [ "$ended" = 1 ] && return
    else
      printf '\n' || exit 0
      em_nap 0.3
    fi
  done
}

em_tail() {
  [ -d "$state/runs/$run_id" ] || { printf 'no-such-run%s' "$GS"; return; }
  log=$state/runs/$run_id/server.log
  trouble=$(em_readable "$log") || { printf '%s%s' "$trouble" "$GS"; return; }
  [ -f "$log" ] || { printf '0 0%s' "$GS"; return; }
  printf '%s %s%s' "$(wc -c < "$log")" "$(tail -n "$lines" "$log" | wc -c)" "$GS"
}

em_gpus() {
  query=--query-gpu=$gpu_fields
  rounds=0
  while :; do
    said=$(nvidia-smi "$query" --format=csv,noheader,nounits 2>&1)
    kind=query
    case $said in
      *"not a valid field"*) said=$(nvidia-smi -q 2>&1); kind=report ;;
    esac
    if [ $((rounds % 2)) = 0 ]; then
      apps=$(nvidia-smi "--query-compute-apps=$process_fields" --format=csv,noheader,nounits 2>&1)
      owners=$(printf '%s\n' "$apps" | cut -d, -f2 | while read -r pid; do
        case $pid in ''|*[!0-9]*) continue ;; esac
        [ -d "/proc/$pid" ] || continue
        printf '%s %s %s\n' "$pid" "$(stat -c %U "/proc/$pid" 2>/dev/null)" "$(em_command "$pid")"
      done)
      parts=
      case $said in *Enabled*) parts=$(nvidia-smi 2>&1) ;; esac
    fi
    rounds=$((rounds + 1))
    printf '%s%s%s%s%s%s%s%s%s%s%s%s' "$kind" "$US" "$said" "$US" "$apps" "$US" "$owners" \
      "$US" "$parts" "$US" "$(head -n 3 /proc/meminfo)" "$GS" || exit 0
    em_nap "$interval"
  done
}

# Path $1 with the home in place of its "~": what is quoted, the shell leaves as it is.
em_full() {
  case $1 in
    "~") printf '%s' "$HOME" ;;
    "~/"*) printf '%s' "$HOME/${1#"~/"}" ;;
    *) printf '%s' "$1" ;;
  esac
}

em_check() {
  printf '%s\n' "$paths" | while IFS= read -r path; do
    [ -n "$path" ] || continue
    full=$(em_full "$path")
    kind=missing; readable=no
    if [ -f "$full" ]; then kind=file
    elif [ -d "$full" ]; then kind=folder
    elif [ -e "$full" ]; then kind=other
    fi
    [ -r "$full" ] && readable=yes
    printf '%s %s %s\n' "$kind" "$readable" "$path"
  done
  printf '%s' "$US"
  [ -n "$program" ] && command -v -- "$(em_full "$program")"
  printf '%s' "$US"
  [ -n "$port_hex" ] && for file in /proc/net/tcp /proc/net/tcp6; do
    awk -v port=":$port_hex" '$4 == "0A" && substr($2, length($2) - 4) == port {
      print $2, $8, $10 }' "$file" 2>/dev/null
  done | while read -r address uid inode; do
    pid=$(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null | head -n 1)
    pid=${pid#/proc/}; pid=${pid%%/*}
    printf '%s %s %s %s\n' "$address" "$uid" "${pid:--}" "$([ -n "$pid" ] && em_command "$pid")"
  done
  printf '%s' "$US"
  df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }'
  printf '%s' "$US"
  place=$state; while [ ! -d "$place" ]; do place=$(dirname "$place"); done
  df -Pk "$place" 2>/dev/null | awk 'NR == 2 { print $4 }'
  printf '%s' "$US"
  [ -n "$python" ] && [ -n "$package" ] && "$(em_full "$python")" -c \
    'import sys,importlib.metadata as m; print(m.version(sys.argv[1]))' "$package" 2>&1 | tail -n 1
  printf '%s' "$GS"
}

em_state
