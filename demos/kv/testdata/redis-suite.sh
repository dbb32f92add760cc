#!/usr/bin/env bash
# Runs Redis' own Tcl tests against servers that listen on 127.0.0.1, each with nothing in it:
#
#	demos/kv/testdata/redis-suite.sh PORT[,PORT...] [FILE...]
#
# With several servers it runs a file on each at once. The source comes from Debian by apt-get, with
# a deb-src list of this script's own, into a temporary directory. It needs tclsh, dpkg-dev and the
# network; the exit code is 75 if the source is out of reach.
#
# Some of the tests measure time, and fail when the machine is busy. So a file that fails is run once
# more at the end, with nothing beside it: what is wrong fails again.
set -euo pipefail
IFS=, read -ra ports <<<"$1"
shift
# The longest first, so that no server is left alone with one of them.
[[ $# -gt 0 ]] || set -- unit/type/list unit/type/zset unit/expire unit/type/set unit/type/string \
	unit/type/hash unit/multi unit/type/incr unit/scan unit/pubsub
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p lists/partial
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] http://deb.debian.org/debian bookworm main" >sources.list
apt=(apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root
	-o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o APT::Update::Error-Mode=any)

# again tries a command up to five times: the network may be out of reach for a while.
again() {
	for try in 1 2 3 4 5; do
		timeout -k 10 300 "$@" && return
		[[ $try -eq 5 ]] || sleep $((try * 10))
	done
	return 1
}

again "${apt[@]}" update || exit 75
again "${apt[@]}" source --download-only redis >/dev/null || exit 75
mkdir source
tar xf redis_*.orig.tar.gz -C source --strip-components 1
# There are no functions to flush.
sed -i '/^    r function flush$/d' source/tests/support/server.tcl
# What its tests draw at random is the same each time, unless LOOPWHEEL_SEED is another number.
sed -i "1i expr {srand(${LOOPWHEEL_SEED:-1})}" source/tests/test_helper.tcl
# Left out: what needs commands that are not here.
cat >skip <<'LIST'
/SORT
/script
/stream
/List ziplist of various encodings
/Hash ziplist of various encodings
Blocking commands ignores the timeout
MULTI with SAVE
LIST
printf '%s\n' "$@" >queue

# next takes a file from the queue.
next() {
	exec 9>lock
	flock 9
	file=$(head -n 1 queue)
	sed -i 1d queue
	exec 9>&-
	[[ -n $file ]]
}

# one runs a file on the server at a port, in copy N of the source, and keeps what it says.
one() {
	local port=$1 n=$2 file=$3
	(cd "source$n" && tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" --baseport $((21111 + 1000 * n)) \
		--singledb --ignore-encoding --durable --skipfile ../skip \
		--tags "-needs:debug -needs:repl -needs:save -needs:config-maxmemory" --single "$file") \
		>"log.${file//\//-}" 2>&1 || true
}

# run runs files of the queue on the server at a port.
run() {
	local port=$1 n=$2 file
	cp -r source "source$n"
	while next; do one "$port" "$n" "$file"; done
}

passed() { grep -q 'All tests passed' "log.${1//\//-}"; }

for i in "${!ports[@]}"; do run "${ports[i]}" "$i" & done
wait
for file in "$@"; do
	passed "$file" && continue
	echo "once more, as it failed: $file" >&2
	grep -A5 -a '^\S*\[\(err\|exception\)' "log.${file//\//-}" >&2 || true
	one "${ports[0]}" 0 "$file"
done
sed -i 's/\x1b\[[0-9;]*m//g' log.*
for log in log.*; do
	grep -q 'All tests passed' "$log" && continue
	grep -A5 '^\[\(err\|exception\)\]' "$log" || tail -n 20 "$log"
	failed=1
done
[[ -z ${failed-} ]] || exit 1
[[ -z ${KEEP_LOGS-} ]] || cp log.* "$KEEP_LOGS"
echo "$(cat log.* | grep -c '^\[ok\]') tests of Redis' own suite passed"
