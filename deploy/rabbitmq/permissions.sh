#!/usr/bin/env bash
# Users of RabbitMQ and what each may do, on the machine of the RabbitMQ server (or in its container):
#
#     ./permissions.sh [VHOST]
#
# ENGINE, MASTER and TASK_WORKER name the users; an empty name leaves one out. A user that does not exist is created with
# a random password, which is printed once. Passwords of existing users stay as they are. Run it again after a change.
#
#   engine       server, workers and schedulers of Dal Segno: they declare everything, read what is to be run and the
#                results of tasks, and publish
#   master       another program that starts executions and reads statuses and completions
#   task worker  another program that takes the tasks of TASK_QUEUES and answers them
#
# Nobody else gets a permission. A master and a task worker declare nothing and publish only to the exchange
# `workflows`, each with its one routing key: not to the default exchange, which reaches every queue.
set -euo pipefail

VHOST=${1:-/}
ENGINE=${ENGINE-dalsegno}
MASTER=${MASTER-dalsegno-master}
TASK_WORKER=${TASK_WORKER-dalsegno-task-worker}
TASK_QUEUES=${TASK_QUEUES-.*}  # a regular expression over the names of queues, such as (mail|pdf)
CTL=${CTL:-rabbitmqctl}

nothing='^$'
ours='^(workflows|workflow\..*|tasks\..*)$'

user() {
	if $CTL --quiet list_users --no-table-headers | cut -f 1 | grep -qxF -- "$1"; then return; fi
	local password
	password=$(head -c 24 /dev/urandom | base64 | tr '+/' '-_')
	printf '%s' "$password" | $CTL --quiet add_user "$1"
	echo "created user $1 with the password $password"
}

allow() {  # user, configure, write, read
	$CTL --quiet set_permissions --vhost "$VHOST" "$1" "$2" "$3" "$4"
}

topics() {  # user, routing keys it may publish with
	$CTL --quiet set_topic_permissions --vhost "$VHOST" "$1" workflows "$2" '.*'
}

if ! $CTL --quiet list_vhosts --no-table-headers | grep -qxF -- "$VHOST"; then
	$CTL --quiet add_vhost "$VHOST"
fi
if [[ -n $ENGINE ]]; then
	user "$ENGINE"
	# amq.default: messages of the retry ladder return through the default exchange. Statuses and completions are
	# written, not read.
	allow "$ENGINE" "$ours" '^(workflows|workflow\..*|tasks\..*|amq\.default)$' \
		'^(workflows|workflow\.(execution|timeout|results).*|tasks\..*)$'
fi
if [[ -n $MASTER ]]; then
	user "$MASTER"
	allow "$MASTER" "$nothing" '^workflows$' '^workflow\.(node\.status|completion)$'
	topics "$MASTER" '^workflow\.execution(\.q\..*)?$'
fi
if [[ -n $TASK_WORKER ]]; then
	user "$TASK_WORKER"
	allow "$TASK_WORKER" "$nothing" '^workflows$' "^tasks\\.($TASK_QUEUES)\$"
	topics "$TASK_WORKER" '^workflow\.results$'
fi
