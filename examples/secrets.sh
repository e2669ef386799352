#!/bin/sh
# Creates the files that docker-compose.yml needs, in secrets/ (or PARSYNC_SECRETS): a random password for each role,
# and users.acl. Existing passwords are kept. Containers read the files as other users, so only the mode of the folder
# protects them.
set -eu
folder=${PARSYNC_SECRETS:-secrets}
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
for role in client scheduler worker viewer; do
  [ -s "$folder/$role" ] || head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$folder/$role"
done
parsync acl --cluster "${PARSYNC_CLUSTER:-parsync}" --password-file "$folder" --close-default >"$folder/users.acl"
