#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Copies all files of one Galera node to another on the same machine: mariadbd runs it as wsrep_sst_copy on both. Debian's
# wsrep_sst_rsync would come with a package that starts a server.
set -eu
role='' address='' data='' gtid='' domain=0 parent='' bypass=''
while [ $# -gt 0 ]; do
  case $1 in
  --role) role=$2 && shift ;;
  --address) address=$2 && shift ;;
  --datadir) data=${2%/} && shift ;;
  --gtid) gtid=$2 && shift ;;
  --gtid-domain-id) domain=$2 && shift ;;
  --parent) parent=$2 && shift ;;
  --bypass) bypass=yes ;; # only what is missing follows, by another way
  --mysqld-args) break ;;
  esac
  shift
done

case $role in
joiner)
  rm -f "$data/sst_state"
  echo "ready $data" # what the donor gets as its address
  until [ -s "$data/sst_state" ]; do
    kill -0 "$parent" || exit 32
    sleep 0.1
  done
  cat "$data/sst_state"
  rm -f "$data/sst_state" "$data/sst_in_progress"
  ;;
donor)
  state="$gtid $domain"
  if [ -z "$bypass" ]; then
    rm -f "$data/tables_flushed" "$data/sst_error"
    echo 'flush tables'
    until grep -qs : "$data/tables_flushed"; do
      [ ! -e "$data/sst_error" ] || exit 255
      sleep 0.1
    done
    state=$(cat "$data/tables_flushed")
    rm "$data/tables_flushed"
    : >"$address/sst_in_progress" # the files are useless until the end
    find "$address" -mindepth 1 -maxdepth 1 ! -name 'galera.*' ! -name '*.dat' ! -name sst_in_progress -exec rm -r {} +
    find "$data" -mindepth 1 -maxdepth 1 \( -type d -o -name 'ib_logfile0' -o -name 'ibdata*' -o -name 'undo*' -o -name 'aria_log*' \) \
      -exec cp -a {} "$address/" \;
  fi
  echo continue
  echo "$state" >"$address/sst_new"
  mv "$address/sst_new" "$address/sst_state"
  echo "done $state"
  ;;
esac
