#!/bin/sh
# Creates the files that docker-compose.yml needs, in secrets/ (or PARSYNC_SECRETS): a random password for each role,
# and users.acl. Of a Redis Cluster, `replica` copies a primary, and `operator` forms the cluster. Existing passwords are kept. Containers read the files as other users, so only the mode of the folder
# protects them.
set -eu
folder=${PARSYNC_SECRETS:-secrets}
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
for role in client scheduler worker viewer replica operator; do
  [ -s "$folder/$role" ] || head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$folder/$role"
done
hash() { tr -d '\n' <"$folder/$1" | sha256sum | cut -d' ' -f1; }
{
  parsync acl --cluster "${PARSYNC_CLUSTER:-parsync}" --password-file "$folder" --close-default
  echo "user replica on #$(hash replica) resetkeys resetchannels -@all +psync +replconf +ping"
  echo "user operator on #$(hash operator) resetkeys resetchannels -@all +cluster +info +ping"
} >"$folder/users.acl"
