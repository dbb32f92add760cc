# What .ci/run and .ci/nightly share. They source it from the repository's root.
set -uo pipefail
exec </dev/null
# The timeout is that of a package's tests, in place of ten minutes: the machine may be slow. What is
# built says nothing of git, which may refuse to answer if somebody else owns this directory. Tests
# wait much: more packages are tested at once than there are processors.
export GOFLAGS="${GOFLAGS-} -timeout=40m -buildvcs=false -p=$(($(nproc) + 1))"

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
engines=(epoll net) # the engines besides the default one, as LOOPWHEEL_ENGINE names them

work=$(mktemp -d)
mkdir -p .ci/out
started=       # the process ids of what runs in the background
goes_on=       # set: a step that fails does not end the run
times=()       # a line for each step
failed=()      # the steps that failed
failures='^ *--- FAIL|^ +[A-Za-z0-9_]+_test\.go:[0-9]+:|^FAIL|^panic:|DATA RACE' # lines that say what failed
current=start  # "": the run has come to its end

cleanup() {
	local code=$?
	stop_started
	table
	rm -rf "$work"
	if [[ -n $current ]]; then
		echo "=== ${SECONDS}s: FAILED in step: $current" >&2
		[[ $code -ne 0 ]] || code=1 # a signal has ended the run
		exit "$code"
	fi
	if [[ ${#failed[@]} -gt 0 ]]; then
		printf '=== FAILED: %s\n' "${failed[@]}" >&2
		exit 1
	fi
	echo "=== ${SECONDS}s: all passed"
}
trap cleanup EXIT

stop_started() {
	[[ -z $started ]] || kill -KILL $started 2>/dev/null
	started=
}

# table prints how long each step took, what was left out, and what failed, which is far above.
table() {
	[[ ${#times[@]} -eq 0 ]] || printf '\n%s\n' "=== times" && printf '%s\n' "${times[@]}"
	[[ ! -s $work/left_out ]] || { echo "=== left out"; cat "$work/left_out"; }
	[[ ! -s $work/failures ]] || { echo "=== failures"; cat "$work/failures"; }
}

# leave_out notes what this run does not do, and why.
leave_out() { echo "left out: $*" | tee -a "$work/left_out"; }

# chosen reports whether a step is to be run: without arguments of the script all are.
wanted=("$@")
chosen() {
	local word
	for word in "${wanted[@]}"; do [[ $1 != *"$word"* ]] || return 0; done
	[[ ${#wanted[@]} -eq 0 || $1 == "install tools" ]]
}

# step NAME COMMAND... runs a command in a shell of its own that ends at the first failure.
step() {
	chosen "$1" || return 0
	local begun=$SECONDS code=0 verdict=ok
	current=$1
	shift
	echo "=== ${SECONDS}s: $current"
	(
		trap stop_started EXIT
		set -e
		"$@"
	) 2>&1 | tee "$work/said"
	code=${PIPESTATUS[0]}
	if [[ $code -ne 0 ]]; then
		verdict=FAILED
		{ echo "in step $current:"; grep -aE "$failures" "$work/said" | cut -c1-300 | head -n 60; } >>"$work/failures"
	fi
	times+=("$(printf '%5d s  %-6s %s' $((SECONDS - begun)) "$verdict" "$current")")
	if [[ $code -ne 0 ]]; then
		[[ -n $goes_on ]] || exit "$code"
		failed+=("$current")
	fi
}

# again tries a command up to five times that may fail for reasons outside: the network is out of
# reach for a while, or says nothing more.
again() {
	local try
	for try in 1 2 3 4 5; do
		if timeout -k 10 600 "$@"; then
			return
		fi
		echo "failed, try $try of 5: $*" >&2
		[[ $try -eq 5 ]] || sleep $((try * 10))
	done
	return 1
}

# apt waits for whoever else installs something on this machine.
apt() { again apt-get -qq -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o DPkg::Lock::Timeout=300 "$@"; }

# needs PROGRAM PACKAGES... notes the packages that a program comes from, if it is missing.
missing=()
needs() { command -v "$1" >/dev/null || missing+=("${@:2}"); }

# install MODULE... installs what needs has noted, and the tools and modules of Go.
install() {
	local module
	if [[ ${#missing[@]} -gt 0 ]]; then
		apt -o APT::Update::Error-Mode=any update || true # some other list may be out of reach
		apt install -y --download-only --no-install-recommends "${missing[@]}" >/dev/null
		DEBIAN_FRONTEND=noninteractive apt install -y --no-install-recommends "${missing[@]}" >/dev/null
	fi
	GOBIN=$work/bin again go install "$staticcheck"
	for module in "$@"; do
		(cd "$module" && again go mod download)
	done
}

modules() { find . -name .git -prune -o -name node_modules -prune -o -name go.mod -printf '%h\n'; }

# start OUT COMMAND... starts a program in the background, which writes to OUT.
start() {
	local out=$1
	shift
	: >"$out" # the shell that starts the program makes it too late
	"$@" >"$out" 2>"$out.log" &
	started+=" $!"
	last=$!
}

# listens waits until a pattern finds where a program listens in what it has said, and prints that.
listens() {
	local found i
	for ((i = 0; i < 600; i++)); do
		found=$(sed -n "$2" "$1" | head -n 1)
		[[ -z $found ]] || break
		sleep 0.1
	done
	[[ -n $found ]] || cat "$1" "$1.log" >&2
	echo "$found"
	[[ -n $found ]]
}

# terminate ends a program as a system does, and wants the exit code 0.
terminate() {
	local pid
	for pid in "$@"; do
		kill -TERM "$pid"
		wait "$pid"
	done
	started=
}
