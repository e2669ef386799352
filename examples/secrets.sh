#!/bin/sh
# Makes what docker-compose.yml needs: a random password for each role and users.acl, in secrets/ (or PARSYNC_SECRETS).
# Passwords that are there are kept. Containers read the files as other users, so the folder is what keeps them in.
set -eu
folder=${PARSYNC_SECRETS:-secrets}
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
for role in client scheduler worker viewer; do
  [ -s "$folder/$role" ] || head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$folder/$role"
done
parsync acl --cluster "${PARSYNC_CLUSTER:-parsync}" --password-file "$folder" --close-default >"$folder/users.acl"
