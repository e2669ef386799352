#!/bin/sh
# Creates the files that docker-compose.yml needs, in secrets/ (or PARSYNC_SECRETS): a random password for each role,
# and users.acl, which `parsync acl` writes. Of a Redis Cluster, `replica` copies a primary, and `operator` forms the cluster. Existing passwords are kept. Containers read the files as other users, so only the mode of the folder
# protects them.
set -eu
if ! command -v parsync >/dev/null; then
  echo "secrets.sh: parsync is not on the PATH, and its \`parsync acl\` writes users.acl: install it first (docs/start.md)" >&2
  exit 1
fi
folder=${PARSYNC_SECRETS:-secrets}
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
for role in client scheduler worker viewer replica operator; do
  [ -s "$folder/$role" ] || head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$folder/$role"
done
hash() { tr -d '\n' <"$folder/$1" | sha256sum | cut -d' ' -f1; }
logins=$(parsync acl --cluster "${PARSYNC_CLUSTER:-parsync}" --password-file "$folder" --close-default)
{
  printf '%s\n' "$logins"
  echo "user replica on #$(hash replica) resetkeys resetchannels -@all +psync +replconf +ping"
  echo "user operator on #$(hash operator) resetkeys resetchannels -@all +cluster +info +ping"
} >"$folder/users.acl"
