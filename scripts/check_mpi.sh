#!/bin/sh
# The MPI communicator under mpirun: the suite on 1 to 4 ranks and the fault table. Needs Open MPI with
# its development files and libclang (Debian: libopenmpi-dev openmpi-bin libclang-dev clang).
#
# Arguments are parts of case names; `heavy` (a message above 2^31 bytes, 9 GB of memory), `throughput`
# and `overlap` run only when named. RINGATTN_TEST_BTL=tcp,self chooses Open MPI's transports.
set -eu
for tool in "${MPICC:-mpicc}" mpirun; do
    command -v "$tool" >/dev/null || {
        echo "$tool not found: install an MPI library (Debian: libopenmpi-dev openmpi-bin) or set MPICC" >&2
        exit 2
    }
done
cd "$(dirname "$0")/.."
exec cargo test -p ringattn-comm --features mpi,fault-injection --test mpi -- "$@"
