#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# apparmor.sh: makes guests on a machine with AppArmor as the distribution installs it, and prints what is not as it should be.
# The last line is "apparmor.sh: done". The console is not for it: a login prompt takes that.
exec >/dev/ttyS1 2>&1
set -uo pipefail
wrong() { echo "apparmor.sh: wrong: $*"; }
finish() {
  echo "apparmor.sh: done"
  systemctl poweroff --force --force
}
trap finish EXIT

qcow2=70a599e0-31e7-49b7-b260-868f441e862b
raw=70a599e0-31e7-49b7-b260-868f441e862c
api() { curl -sS -m 60 -X "$1" -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: compute 2.69' -H 'Content-Type: application/json' \
  "http://127.0.0.1:8774/v2.1$2" ${3:+-d "$3"}; }
manage() { runuser -u compute-agent-cells-api -- compute-agent cells manage "$@" --config /etc/compute-agent/compute-api.toml; }
# becomes STATUS SERVER: waits for a status.
becomes() {
  for _ in $(seq 150); do
    shows=$(api GET "/servers/$2" | grep -o '"status":"[A-Z]*"')
    case $shows in *"$1"* | *ERROR*) break ;; esac
    sleep 2
  done
  [ "$shows" = "\"status\":\"$1\"" ] || { wrong "server $2 is $shows, want $1"; api GET "/servers/$2"; }
}

[ "$(aa-enabled)" = Yes ] || wrong "AppArmor is not enabled: $(cat /sys/kernel/security/lsm)"
systemd-sysusers compute-agent.conf
systemd-tmpfiles --create compute-agent.conf
usermod -aG libvirt compute-agent
install -D -m 644 -t /etc/systemd/system/compute-agent.service.d /usr/share/compute-agent/instances.conf
systemctl daemon-reload
systemctl enable --now compute-agent-placement.socket compute-agent-cell@cell0 compute-agent-cell@cell1 compute-agent-cells-api compute-agent
qemu-img create -q -f qcow2 /var/lib/compute-agent-images/$qcow2 16M
qemu-img create -q -f raw /var/lib/compute-agent-images/$raw 16M
manage create --cell0 --url unix:///run/compute-agent-cell-cell0/cell.sock
manage create --name cell1 --url unix:///run/compute-agent-cell-cell1/cell.sock
for _ in $(seq 60); do
  manage discover-hosts >/dev/null
  manage list-hosts | grep -q cell1 && break
  sleep 2
done
api POST /flavors '{"flavor": {"id": "1", "name": "tiny", "vcpus": 1, "ram": 64, "disk": 1}}' >/dev/null
servers=()
for image in $qcow2 $raw; do
  servers+=("$(api POST /servers '{"server": {"name": "one", "flavorRef": "1", "imageRef": "'$image'", "networks": "none", "user_data": "IyEK"}}' |
    sed 's/.*"server":{"id":"\([^"]*\)".*/\1/')")
done
for server in "${servers[@]}"; do becomes ACTIVE "$server"; done
api POST "/servers/${servers[0]}/action" '{"os-stop": null}'
becomes SHUTOFF "${servers[0]}"
api POST "/servers/${servers[0]}/action" '{"os-start": null}'
becomes ACTIVE "${servers[0]}"
for server in "${servers[@]}"; do # libvirt's profiles
  confined=$(ps -eo label:64,args | grep -c "^libvirt-$server (enforce).*qemu-system")
  [ "$confined" = 1 ] || wrong "$confined processes of QEMU have the profile of $server"
done
# The services have systemd's sandbox, and the drivers Landlock: no profile of AppArmor is theirs.
ps -eo label:64,args | grep -E '^.{64} /usr/(bin|libexec)/compute-agent' | grep -v '^unconfined' && wrong "a process of ours is confined by AppArmor"
journalctl --boot --no-pager --output=cat _TRANSPORT=kernel _TRANSPORT=audit | grep 'apparmor="DENIED"' && wrong "AppArmor refused something"
# ProtectKernelTunables= of systemd 257 leaves /sys writable.
nsenter --target "$(systemctl show --value -p MainPID compute-agent)" --mount -- sh -c 'echo 1 >/sys/devices/system/cpu/cpu1/online' 2>/dev/null &&
  wrong "/sys is writable for the agent's service"
systemctl --no-pager status compute-agent
compute-agent status
