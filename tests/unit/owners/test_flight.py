"""The front by Arrow Flight, and its connection: answers as the owner gives them, and OSErrors where none comes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
from lightning_gnnload.errors import AddressError, ExchangeError, ForkError, FrameError, StrangerError
from lightning_gnnload.host.tcp import Frame
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.connection import HELLO, Connection, OwnerFailedError
from lightning_gnnload.owners.owner import Owner, Reply
from lightning_gnnload.sample.group.messages import Message
from tests.cluster.certificates import can_make, make_certificate
from tests.forked import in_child
from tests.runif import RunIf

if find_spec("pyarrow"):  # the mark below tells where it is missing
    import pyarrow as pa
    from pyarrow import flight

    from lightning_gnnload.owners.flight.connection import FlightConnection
    from lightning_gnnload.owners.flight.front import FlightFront
    from lightning_gnnload.owners.flight.proof import Caller, Callers
    from lightning_gnnload.owners.flight.stream import NOTHING, FlightStream

pytestmark = [RunIf(extras="flight"), pytest.mark.timeout(60)]
SECRET, OTHER = b"a secret of these tests", b"another secret of these"
ROWS = np.array([3, 0, 3, 1])
MIB = 1 << 20


class Scripted:
    """Answers by numbers of ``about``: so many bytes in pieces of a MiB, each of which writes over the one before."""

    hello: dict[str, Any] = {"parts": [0]}  # noqa: RUF012

    def answer(self, task: np.ndarray) -> Reply:
        message = Message.from_bytes(task)
        if (error := message.about.get("error")) is not None:
            raise {"refused": ExchangeError, "failed": MemoryError, "odd": KeyError}[error]("as it was told to")
        num_bytes = message.about["num_bytes"]
        time.sleep(message.about.get("before_s", 0))
        return Reply(message.about.get("announced", num_bytes), self._pieces(num_bytes, message.about.get("amid_s", 0)))

    def _pieces(self, num_bytes: int, amid_s: float) -> Iterator[np.ndarray]:
        memory = np.empty(MIB, np.uint8)
        for begin in range(0, num_bytes, MIB):
            memory[:] = begin // MIB
            yield memory[: num_bytes - begin]
            time.sleep(amid_s)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Owner:
    folder = tmp_path_factory.mktemp("parts")
    ring = GraphData(
        Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), x=torch.arange(24.0).view(8, 3), train=range(8)
    )
    partition_graph(ring, folder / "parts", 2, hops=0, progress=False)
    return Owner(load_partition(folder / "parts"))


def ask(connection: Connection, about: dict[str, Any]) -> np.ndarray:
    connection.send(Message(about, {}).to_bytes())
    return connection.receive()


def rows_task(part: int = 1) -> np.ndarray:
    return Message({"operation": "rows", "part": part, "table": "x"}, {"rows": ROWS}).to_bytes()


def connect(front: FlightFront, secret: bytes = SECRET, deadline_s: float = 20.0, **settings: Any) -> FlightConnection:
    return FlightConnection(front.address, secret, 20.0, deadline_s, **settings)


@pytest.fixture
def scripted() -> Iterator[FlightFront]:
    with FlightFront(Scripted(), "127.0.0.1", 0, SECRET) as front:  # type: ignore[arg-type]
        yield front


def test_answers_and_rows_are_the_owners(owner: Owner) -> None:
    with FlightFront(owner, "127.0.0.1", 0, SECRET) as front:
        connection = connect(front)
        assert connection.hello == owner.hello
        for part in range(2):
            want = np.concatenate([piece.copy() for piece in owner.answer(rows_task(part)).pieces]).reshape(-1, 12)
            out = np.zeros((4, 12), np.uint8)
            connection.send(rows_task(part))
            connection.receive_rows(out, None)
            assert (out == want).all()
            spread = np.full((9, 12), 7, np.uint8)
            connection.send(rows_task(part))
            connection.receive_rows(spread, np.array([8, 1, 4, 2]))
            assert (spread[[8, 1, 4, 2]] == want).all()
            assert (spread[[0, 3, 5, 6, 7]] == 7).all()
        connection.close()
        connection.close()


def test_a_slow_reader_gets_each_piece_as_it_was(scripted: FlightFront) -> None:
    """What gRPC still holds is not written over: without a copy, late pieces come twice, and early ones never."""
    connection = connect(scripted)
    connection.send(Message({"num_bytes": 24 * MIB}, {}).to_bytes())
    time.sleep(0.3)  # the owner fills all buffers on the way
    answer = connection.receive()
    connection.close()
    assert (answer.reshape(24, MIB) == np.arange(24)[:, None]).all()


@pytest.mark.parametrize("num_bytes", [0, 1, MIB - 1, MIB, MIB + 1])
def test_answers_of_all_sizes_come_whole(scripted: FlightFront, num_bytes: int) -> None:
    connection = connect(scripted)
    assert len(ask(connection, {"num_bytes": num_bytes})) == num_bytes
    connection.close()


def test_errors_say_whether_another_owner_could_answer(scripted: FlightFront) -> None:
    connection = connect(scripted)
    for error, wanted in (("refused", ExchangeError), ("failed", OwnerFailedError), ("odd", ExchangeError)):
        with pytest.raises(wanted, match="as it was told to"):
            ask(connection, {"error": error})
    assert len(ask(connection, {"num_bytes": 5})) == 5
    connection.close()


@pytest.mark.parametrize("announced", [4, 6, 2**62])
def test_an_answer_of_another_size_is_no_answer(scripted: FlightFront, announced: int) -> None:
    connection = connect(scripted)

    def ask_twice() -> None:  # of one byte more is told by the next, which the owner does not answer
        for _ in range(2):
            ask(connection, {"num_bytes": 5, "announced": announced})

    with pytest.raises(ConnectionError):  # a frame that is none, or the owner has ended the call by then
        ask_twice()
    connection.close()
    connection = connect(scripted)
    connection.send(Message({"num_bytes": 5, "announced": announced}, {}).to_bytes())
    with pytest.raises(FrameError, match="but 2 rows of 9 asked for"):
        connection.receive_rows(np.empty((2, 9), np.uint8), None)
    connection.close()


@pytest.mark.parametrize("where", ["before_s", "amid_s"])
def test_a_silent_owner_is_late_and_a_slow_one_is_not(scripted: FlightFront, where: str) -> None:
    connection = connect(scripted, deadline_s=0.4)
    # Each piece in time, all of them not: a limit of whole calls, as gRPC's, would end this one.
    assert len(ask(connection, {"num_bytes": 6 * MIB, where: 0.15})) == 6 * MIB
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"nothing for 0\.4 s"):
        ask(connection, {"num_bytes": 2 * MIB, where: 1.5})
    assert time.monotonic() - began < 1.2
    connection.close()


def test_who_does_not_know_the_secret_learns_nothing(scripted: FlightFront) -> None:
    turned_away: list[str] = []
    with FlightFront(Scripted(), "127.0.0.1", 0, SECRET, on_stranger=turned_away.append) as front:  # type: ignore[arg-type]
        with pytest.raises(StrangerError, match="does not take this secret"):
            connect(front, OTHER)
        assert len(turned_away) == 1
        location = str(front.address)
        for header in ("", "x", "ä" * 64 + " " + "0" * 64, "0" * 64 + " " + "0" * 64):
            client = flight.FlightClient(location)
            options = flight.FlightCallOptions(headers=[(b"gnnload-proof", header.encode())], timeout=10)
            calls = [
                lambda: list(client.list_flights(options=options)),  # noqa: B023
                lambda: client.do_get(flight.Ticket(b""), options),  # noqa: B023
                lambda: list(client.do_action("hello", options)),  # noqa: B023
                lambda: client.do_exchange(flight.FlightDescriptor.for_command(b"hello"), options)[1].read_chunk(),  # noqa: B023
            ]
            for call in calls:
                with pytest.raises((flight.FlightError, pa.ArrowException)) as error:
                    call()
                assert "parts" not in str(error.value)
            client.close()


def test_an_owner_without_the_secret_is_not_believed() -> None:
    """One that lets everybody in, and answers well."""

    class Impostor(flight.FlightServerBase):
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            stream = FlightStream(writer, reader)
            stream._begin(0.0)
            stream._write(NOTHING, bytes(32), 0.0)
            reader.read_chunk()  # who ends before it has read, ends the call, perhaps before its answer has gone
            stream.send(Frame(HELLO, 0, 2), 0.0, b"{}")

    with Impostor("grpc://127.0.0.1:0") as impostor, pytest.raises(StrangerError, match="not who this process looks"):
        FlightConnection(Address("grpc", "127.0.0.1", impostor.port), SECRET, 10.0, 10.0)


def test_messages_that_are_none_end_their_call_alone(scripted: FlightFront) -> None:
    connection = connect(scripted)
    numbers = pa.RecordBatch.from_arrays([pa.array([1, 2])], names=["bytes"])
    nulls = pa.RecordBatch.from_arrays([pa.array([None, None], pa.uint8())], names=["bytes"])
    for batch in (numbers, nulls, None):
        client = flight.FlightClient(str(scripted.address), middleware=[Callers(Caller(SECRET))])
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""))
        if batch is not None:
            writer.begin(batch.schema)
            writer.write_batch(batch)
        writer.done_writing()
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            reader.read_chunk()  # the owner's number
        with pytest.raises((flight.FlightError, pa.ArrowException)):
            reader.read_chunk()
        with contextlib.suppress(pa.ArrowException, OSError):
            writer.close()
        client.close()
        assert len(ask(connection, {"num_bytes": 5})) == 5
    connection.send(np.full(40, 255, np.uint8))
    with pytest.raises(ExchangeError, match="no message"):
        connection.receive()
    connection.close()


def test_who_repeats_what_was_overheard_is_turned_away() -> None:
    """The header of a call that was overheard opens another, which is then asked for what only the secret gives."""
    told: list[str] = []
    with FlightFront(Scripted(), "127.0.0.1", 0, SECRET, on_stranger=told.append) as front:  # type: ignore[arg-type]
        overheard = Caller(SECRET).sending_headers()
        client = flight.FlightClient(str(front.address))
        options = flight.FlightCallOptions(headers=[(k.encode(), v.encode()) for k, v in overheard.items()], timeout=10)
        stream = FlightStream(*client.do_exchange(flight.FlightDescriptor.for_command(b""), options))
        stream._begin(0.0)
        stream._message(0.0)
        stream._write(NOTHING, b"0" * 64, 0.0)
        with pytest.raises(ConnectionResetError):
            stream.receive(0.0)
        stream._reader.cancel()
        client.close()
        assert len(told) == 1
        assert "turned away: who called may have overheard" in told[0]


def test_an_owner_that_is_gone_is_an_oserror(owner: Owner) -> None:
    front = FlightFront(owner, "127.0.0.1", 0, SECRET)
    connection = connect(front)
    front.close()
    front.close()
    with pytest.raises(ConnectionError):
        ask(connection, {"num_bytes": 1})
    connection.close()
    with pytest.raises(ConnectionError):
        connect(front)


def test_a_client_that_never_reads_takes_little_memory_and_no_ones_time(scripted: FlightFront) -> None:
    idle, other = connect(scripted), connect(scripted)
    process = psutil.Process()
    ask(other, {"num_bytes": 8 * MIB})
    before = process.memory_info().rss
    idle.send(Message({"num_bytes": 200 * MIB}, {}).to_bytes())
    time.sleep(0.3)
    assert len(ask(other, {"num_bytes": 3 * MIB})) == 3 * MIB
    assert process.memory_info().rss - before < 60 * MIB  # what gRPC may have under way, of both ends
    # It goes on where it was.
    assert len(idle.receive()) == 200 * MIB
    idle.close()
    other.close()


def test_a_front_ends_though_clients_wait_and_do_not_read() -> None:
    with FlightFront(Scripted(), "127.0.0.1", 0, SECRET) as front:  # type: ignore[arg-type]
        idle, connection = connect(front), connect(front)
        connection.send(Message({"num_bytes": 400 * MIB}, {}).to_bytes())
        time.sleep(0.2)
        began, descriptors = time.monotonic(), len(os.listdir("/proc/self/fd"))
        front.close()
        assert time.monotonic() - began < 2
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        with pytest.raises(ConnectionError):
            connection.receive()
        with pytest.raises(ConnectionError):
            ask(idle, {"num_bytes": 1})
        connection.close()
        idle.close()


def test_a_taken_port_is_told(scripted: FlightFront) -> None:
    with pytest.raises(AddressError, match=r"nobody can listen at grpc://127\.0\.0\.1"):
        FlightFront(Scripted(), "127.0.0.1", scripted.address.port, SECRET)  # type: ignore[arg-type]


@pytest.mark.skipif(not can_make(), reason="needs openssl")
def test_tls_needs_who_vouches_for_the_owner(owner: Owner, tmp_path: Path) -> None:
    made, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    certificate = (made.certificate.read_bytes(), made.key.read_bytes())
    with FlightFront(owner, "127.0.0.1", 0, SECRET, certificate=certificate) as front:
        assert front.address.scheme == "grpc+tls"
        connection = connect(front, authority=certificate[0])
        assert connection.hello == owner.hello
        connection.close()
        with pytest.raises(ConnectionError):
            FlightConnection(front.address, SECRET, 3.0, 3.0, other.certificate.read_bytes())
        with pytest.raises(ConnectionError):
            FlightConnection(Address("grpc", "127.0.0.1", front.address.port), SECRET, 3.0, 3.0)


def test_a_fork_is_told_that_grpc_is_not_in_it(scripted: FlightFront) -> None:
    def work() -> None:
        try:
            connect(scripted)
        except ForkError as error:
            os.write(1, str(error).encode())

    code, printed = in_child(work)
    assert (code, "Arrow Flight works in process" in printed) == (0, True), printed


def test_a_connection_leaves_no_thread(scripted: FlightFront) -> None:
    connection = connect(scripted)
    assert "gnnload-flight" in {thread.name for thread in threading.enumerate()}
    connection.close()
    assert "gnnload-flight" not in {thread.name for thread in threading.enumerate()}
