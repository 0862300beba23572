# .ci/docker.sh is sourced by scripts that need Docker.
#
# On a machine that cannot reach a registry, 'make node-image' builds an image of kind's nodes, starts a docker daemon that
# has the image, and writes the address of the daemon to env.sh. That daemon is used if it answers, unless DOCKER_HOST
# names another one.
use_built_node_image() {
	local env=${RULEFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rulefleet}/kind-node/env.sh
	# shellcheck disable=SC1090
	[[ -e $env ]] || return 0
	local theirs
	theirs=$(unset DOCKER_HOST && source "$env" && echo "${DOCKER_HOST:-}")
	if [[ ${DOCKER_HOST:-$theirs} == "$theirs" ]] && (source "$env" && docker_answers); then
		source "$env"
		export E2E_NODE_IMAGE=${E2E_NODE_IMAGE:-kindest/node:local}
	fi
}

docker_answers() { docker version --format '{{ .Server.Version }}' >/dev/null 2>&1; }

require_docker() {
	if ! command -v docker >/dev/null; then
		echo "${0##*/}: there is no docker" >&2
		exit 1
	fi
	if ! docker_answers; then
		echo "${0##*/}: the docker daemon does not answer${DOCKER_HOST:+ at $DOCKER_HOST}; without a registry, 'make node-image' starts one" >&2
		exit 1
	fi
}

use_built_node_image
