#!/usr/bin/env bash
# Users of Redis and what each may do:
#
#     ./permissions.sh [OPTIONS OF redis-cli, such as -h HOST -p PORT --user ADMIN --askpass]
#
# ENGINE, MASTER and TASK_WORKER name the users; an empty name leaves one out. A user that does not exist is created with
# a random password, which is printed once. Passwords of existing users stay as they are. Run it again after a change.
#
#   engine       server, workers and schedulers of Dal Segno
#   master       another program that plants timers
#   task worker  another program that takes the tasks of TASK_QUEUES (patterns as in KEYS) and answers them
#
# Keys and channels that are not named here are out of reach. The user `default`, who may do everything without a
# password, is left to you: `ACL SETUSER default off`.
set -euo pipefail

ENGINE=${ENGINE-dalsegno}
MASTER=${MASTER-dalsegno-master}
TASK_WORKER=${TASK_WORKER-dalsegno-task-worker}
TASK_QUEUES=${TASK_QUEUES-*}

redis() { redis-cli --no-auth-warning "${OPTIONS[@]}" "$@"; }
OPTIONS=("$@")

user() {  # user, rules
	local name=$1 password
	shift
	if ! redis ACL LIST | grep -q "^user $name "; then
		password=$(head -c 24 /dev/urandom | base64 | tr '+/' '-_')
		redis ACL SETUSER "$name" on ">$password" >/dev/null
		echo "created user $name with the password $password"
	fi
	local said
	said=$(redis ACL SETUSER "$name" resetkeys resetchannels -@all "$@")
	[[ $said == OK ]] || { echo "$name: $said" >&2; exit 1; }
}

if [[ -n $ENGINE ]]; then
	user "$ENGINE" '~wf:*' '~scheduler:*' '~tasks:*' '~worker:*' '&wf:*' \
		+@read +@write +@pubsub +@transaction +@scripting +@connection -@dangerous +info +time
fi
if [[ -n $MASTER ]]; then
	user "$MASTER" '~scheduler:timers' '~scheduler:payloads' \
		+@connection +@transaction +zadd +zrem +zscore +hset +hget +hdel
fi
if [[ -n $TASK_WORKER ]]; then
	queues=()
	set -f; for queue in $TASK_QUEUES; do queues+=("~tasks:$queue"); done
	user "$TASK_WORKER" "${queues[@]}" '~wf:stream:results' '~worker:*' \
		+@connection +@transaction +xgroup +xreadgroup +xautoclaim +xclaim +xack +xdel +xadd +xlen +hset +hget +hgetall +expire +del
fi
if [[ $(redis ACL SAVE 2>&1) != OK && $(redis CONFIG REWRITE 2>&1) != OK ]]; then
	echo "these users last until Redis restarts: it has neither an aclfile nor a configuration file to write them to" >&2
fi
