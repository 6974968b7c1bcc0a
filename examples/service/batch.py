"""A batch from start to end, and on from where it was: add, poll, read results, delete.

    python examples/service/batch.py ADDRESS BATCH FILE.mir... --target=gfx942 --phase=sgpr --into=DIR

Answers whose functions are all proved are written to DIR under the name of their file. Run it again after an
interruption, of the client or of the server: it goes on. The token is $VERILOCC_TOKEN. Exit code 1: not all are proved.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import batch_service_pb2 as batching
from verilocc.v1 import batch_service_pb2_grpc, problem_pb2, verdict_pb2

SECONDS = 60.0


def call(method: Callable[..., Any], request: object) -> Any:
    """Call until it is answered: to repeat is safe, and the server may be about to start again."""
    token = os.environ.get("VERILOCC_TOKEN")
    metadata = [("authorization", f"Bearer {token}")] if token else []
    for pause in (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0):
        try:
            return method(request, timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise
            time.sleep(pause)
    return method(request, timeout=SECONDS, metadata=metadata)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("batch")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--target", default="")
    parser.add_argument("--phase", choices=("sgpr", "vgpr"), required=True)
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    phase = problem_pb2.Phase.Value(f"PHASE_{given.phase.upper()}")
    given.into.mkdir(exist_ok=True)
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(given.address, options) as channel:
        stub = batch_service_pb2_grpc.BatchServiceStub(channel)
        for path in given.files:
            mir = allocation.MachineIr(text=path.read_bytes(), target=given.target, phase=phase, name=path.name)
            request = allocation.AllocateRequest(mir=mir, return_mir=True)
            call(stub.AddToBatch, batching.AddToBatchRequest(batch=given.batch, id=path.name, request=request))
        after, proved = 0, 0
        while True:
            answer = call(stub.ListBatchResults, batching.ListBatchResultsRequest(batch=given.batch, after=after))
            for result in answer.results:
                after = result.place
                functions = result.response.functions
                if functions and all(f.outcome == verdict_pb2.OUTCOME_PROVED for f in functions):
                    (given.into / result.id).write_bytes(result.response.mir)
                    proved += 1
                else:
                    reasons = [result.error.message, *(f.reason for f in functions)]
                    print(f"{result.id}: {'; '.join(filter(None, reasons))}", file=sys.stderr)
            if not answer.results and answer.batch.state != batching.BATCH_STATE_RUNNING:
                break
            if not answer.results:
                time.sleep(1.0)
        call(stub.DeleteBatch, batching.DeleteBatchRequest(batch=given.batch))
    print(f"{proved} of {after} proved")
    return 0 if proved == after else 1


if __name__ == "__main__":
    sys.exit(main())
