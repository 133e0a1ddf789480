#!/bin/sh
# MPI under mpirun: the communicator's suite on 1 to 4 ranks and its faults, then the command's values and
# faults. `./x test` does the same. Needs Open MPI with its development files and libclang (Debian:
# libopenmpi-dev openmpi-bin libclang-dev clang).
#
# Arguments are parts of the names of cases; the communicator's `heavy` (a message above 2^31 bytes, 9 GB of
# memory), `throughput` and `overlap` run only when named. RINGATTN_TEST_BTL=tcp,self chooses Open MPI's
# transports.
set -eu
for tool in "${MPICC:-mpicc}" mpirun; do
    command -v "$tool" >/dev/null || {
        echo "$tool not found: install an MPI library (Debian: libopenmpi-dev openmpi-bin) or set MPICC" >&2
        exit 2
    }
done
cd "$(dirname "$0")/.."
# With the features of the whole workspace, so that nothing is built twice beside `./x test`.
exec cargo test --workspace --features mpi,fault-injection --test mpi -- "$@"
