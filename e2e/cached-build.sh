#!/usr/bin/env bash
# e2e/cached-build.sh is sourced by the build.sh of the modules beside it. It builds
# a program once for each hash of its sources, keeps it in the cache, and puts it into a
# folder of the checkout.
#
# The folder has its own link to the program, so that clearing the cache breaks no
# checkout. Concurrent runs are safe: everything appears by rename, and one run
# builds while the others wait.
export GOWORK=off

readonly kept=2 # Newest cache entries: switching between two branches rebuilds nothing.

# use PROGRAM HASH OUT selects the program for the functions below.
use() {
	program=$1 hash=$2 out=$3
	cache=${RULEFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rulefleet}/$program
	entry=$cache/$hash
}

say() { echo "$program: $*"; }

digest() {
	local sum
	sum=$(sha256sum) && echo "${sum:0:16}"
}

# size prints the bytes of a file, or 0 when there is none.
size() { if [[ -f $1 ]]; then echo $(($(wc -c <"$1"))); else echo 0; fi; }

# content prints a small file, or nothing when there is none.
content() { if [[ -f $1 ]]; then echo "$(<"$1")"; fi; }

# write puts its input into a file by rename.
write() { cat >"$1.$$" && mv -f "$1.$$" "$1"; }

# A program counts only with the size that was noted when it was complete: a full
# disk or a cache that was restored in part leaves a shorter one.
cache_is_whole() {
	[[ -x $entry/$program && $(content "$entry/size") == "$(size "$entry/$program")" ]]
}

# is_placed: OUT has the program of this hash.
is_placed() {
	[[ -x $out/$program && $(content "$out/.$program") == "$hash $(size "$out/$program")" ]]
}

# lock waits until no other run works on this program.
lock() {
	mkdir -p "$cache"
	exec {lock_file}>"$cache/lock"
	if command -v flock >/dev/null && ! flock -n "$lock_file"; then
		say "waiting for another build to end"
		flock "$lock_file"
	fi
}

# place GO-BUILD-ARGUMENTS…: builds the program unless the cache has it, and puts it
# into OUT. The caller holds the lock.
place() {
	if ! cache_is_whole; then build "$@"; fi
	touch "$entry" # It is the newest now, for remove_old.
	# The cache may be on another file system.
	ln -f "$entry/$program" "$out/$program.$$" 2>/dev/null ||
		cp "$entry/$program" "$out/$program.$$"
	mv -f "$out/$program.$$" "$out/$program"
	# mv leaves the source when both are links to one file.
	rm -f "$out/$program.$$"
	echo "$hash $(size "$out/$program")" | write "$out/.$program"
}

build() {
	local next=15
	SECONDS=0
	mkdir -p "$entry"
	CGO_ENABLED=0 go build -buildvcs=false -o "$entry/$program.$$" "$@" &
	building=$!
	# Background jobs do not receive Ctrl-C.
	trap 'kill "$building" 2>/dev/null || true; rm -f "$entry/$program.$$"' EXIT
	while kill -0 "$building" 2>/dev/null; do
		sleep 1
		if ((SECONDS >= next)); then
			say "still building after $SECONDS s"
			next=$((SECONDS + 15))
		fi
	done
	wait "$building"
	mv -f "$entry/$program.$$" "$entry/$program"
	trap - EXIT
	size "$entry/$program" | write "$entry/size"
	say "built in $SECONDS s"
	remove_old
}

remove_old() {
	local old n=0
	while read -r old; do
		# Only folders that this script created have a hash as their name.
		if [[ ! $old =~ ^[0-9a-f]{16}/$ ]]; then continue; fi
		n=$((n + 1))
		if ((n > kept)); then rm -rf "${cache:?}/$old"; fi
	done < <(cd "$cache" && ls -1dt -- */)
}
