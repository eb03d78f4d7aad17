#!/bin/sh
# Users of RabbitMQ for Dal Segno, one per role, with no more rights than the role needs.
#
#   ENGINE_PASSWORD=… MASTER_PASSWORD=… TASKS_PASSWORD=… deploy/rabbitmq/permissions.sh [VHOST]
#
# engine   workers, servers and schedulers of Dal Segno: they declare the queues, read what is to be run, and publish.
# master   a program that sends execution messages and reads statuses and completions, and nothing else.
# tasks    workers of other programs: they read tasks.<queue> and publish their results.
#
# A user without a password in the environment is not made; one that exists gets the password and the rights anew.
# Others publish to the exchange `workflows` only: through the default exchange a user reaches every queue.
set -eu

vhost=${1:-/}
ctl=${RABBITMQCTL:-rabbitmqctl}
ours='^(workflows|workflow\..*|tasks\..*)$'
nothing='^$'

user() { # name password configure write read
  "$ctl" -q add_user "$1" "$2" 2>/dev/null || "$ctl" -q change_password "$1" "$2"
  "$ctl" -q set_permissions -p "$vhost" "$1" "$3" "$4" "$5"
}

"$ctl" -q add_vhost "$vhost" 2>/dev/null || "$ctl" -q list_permissions -p "$vhost" >/dev/null

if [ -n "${ENGINE_PASSWORD:-}" ]; then
  # Statuses and completions are written, not read.
  user engine "$ENGINE_PASSWORD" "$ours" '^(amq\.default|workflows|workflow\..*|tasks\..*)$' \
    '^(workflows|workflow\.(execution|timeout|results).*|tasks\..*)$'
fi
if [ -n "${MASTER_PASSWORD:-}" ]; then
  user master "$MASTER_PASSWORD" "$nothing" '^workflows$' '^workflow\.(node\.status|completion)$'
  "$ctl" -q set_topic_permissions -p "$vhost" master workflows '^workflow\.execution(\.q\..*)?$' "$nothing"
fi
if [ -n "${TASKS_PASSWORD:-}" ]; then
  user tasks "$TASKS_PASSWORD" "$nothing" '^workflows$' '^tasks\..*$'
  "$ctl" -q set_topic_permissions -p "$vhost" tasks workflows '^workflow\.results$' "$nothing"
fi
