#!/usr/bin/env bash
# A SuperLink and ten SuperNodes on this machine, without TLS: only for a trial. Ctrl-C ends them.
export FLWR_HOME=$PWD/.flwr FEDSIM_OUTPUT=$PWD/runs/deployed OMP_NUM_THREADS=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p "$FLWR_HOME"
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:9091"\ninsecure = true\n' > "$FLWR_HOME/config.toml"
trap 'kill $(jobs -p)' EXIT
flower-superlink --insecure --host 127.0.0.1 --port 9091 &
sleep 5
number=0
for step_s in 0.05 0.05 0.1 0.1 0.15 0.15 0.2 0.2 0.5 1.0; do
  flower-supernode --insecure --superlink 127.0.0.1:9091 --port $((9100 + number)) \
    --node-config "partition-id=$number step-s=$step_s" &
  number=$((number + 1))
done
wait
