#!/usr/bin/env bash
# Runs Redis' own Tcl tests against a server that listens on 127.0.0.1:PORT:
#
#	examples/kv/testdata/redis-suite.sh PORT [FILE...]
#
# The source comes from Debian by apt-get, with a deb-src list of this script's own, into a temporary
# directory. It needs tclsh, dpkg-dev and the network.
set -euo pipefail
port=$1
shift
[[ $# -gt 0 ]] || set -- unit/type/string unit/type/incr unit/type/list unit/type/hash \
	unit/type/set unit/type/zset unit/expire unit/pubsub unit/multi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p lists/partial
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] http://deb.debian.org/debian bookworm main" >sources.list
apt=(apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" source --download-only redis >/dev/null
tar xf redis_*.orig.tar.gz
cd redis-*/
# There are no functions to flush.
sed -i '/^    r function flush$/d' tests/support/server.tcl
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
files=()
for f in "$@"; do files+=(--single "$f"); done
tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" --singledb --ignore-encoding --durable \
	--skipfile skip --tags "-needs:debug -needs:repl -needs:save -needs:config-maxmemory" \
	"${files[@]}" >log 2>&1 || true
sed -i 's/\x1b\[[0-9;]*m//g' log
if ! grep -q 'All tests passed' log; then
	grep -A5 '^\[\(err\|exception\)\]' log || tail -n 20 log
	exit 1
fi
echo "$(grep -c '^\[ok\]' log) tests of Redis' own suite passed"
