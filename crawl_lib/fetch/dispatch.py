"""From a job whose turn it is to the transport: the host's address, the turns of IP and host, and the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.address import AddressFilter
from crawl_lib.fetch.answers import Answers
from crawl_lib.fetch.classify import one_line
from crawl_lib.fetch.dns import AtOnce, DnsCache, literal_address
from crawl_lib.fetch.hosts import Gate, Job, ReadyHeap, Slot
from crawl_lib.fetch.messages import Ask, Reply
from crawl_lib.fetch.resolver import Answer, SystemResolver
from crawl_lib.fetch.retry import Trouble
from crawl_lib.fetch.seams import Carrier, Seams
from crawl_lib.fetch.turns import IpTurns
from crawl_lib.states import Outcome


class Crew(Protocol):
    """What the loop does for its dispatch."""

    def replied(self, slot: Slot, job: Job, reply: Reply) -> None:
        """An answer, or a failure, of a request that was sent."""

    def schedule(self, slot: Slot) -> None:
        """The slot may have something to do now."""

    def pump(self) -> None:
        """Start what is ready."""

    def guarded(self, call: Callable[[], None]) -> None:
        """Make a call whose error ends the loop."""

    def is_over(self) -> bool:
        """Whether the loop has ended."""


class Dispatch:
    """Sends the jobs of one run. All methods belong to the loop's thread.

    `heap`: of what is ready when; gates join it. `in_flight`: requests that the transport has, or that have answered
    and are not reported yet: the crew counts them down. `answers`: for what fails before it is sent.
    """

    def __init__(
        self,
        config: FetchConfig,
        *,
        turns: IpTurns,
        seams: Seams,
        heap: ReadyHeap,
        transport: Carrier,
        answers: Answers,
        crew: Crew,
    ) -> None:
        self.in_flight = 0
        self._config = config
        self._turns = turns
        self._heap = heap
        self._transport = transport
        self._answers = answers
        self._crew = crew
        self._clock = seams.clock
        self._retries = seams.retries
        self._filter = AddressFilter(config.allow_networks)
        self._mime_types = frozenset(kind.lower() for kind in config.mime_types) if config.mime_types else None
        self._gates: dict[str, Gate] = {}
        resolver = AtOnce(seams.resolver) if seams.resolver else SystemResolver(seams.dns_servers)
        self._dns = DnsCache(config.dns_ttl_s, config.dns_timeout_s, seams.clock, resolver)

    def close(self) -> None:
        """Abandon what runs, without calling back."""
        self._transport.close()
        self._dns.close()

    @property
    def may_begin(self) -> bool:
        """Whether another host may be begun: a connection is free, and so many names are not being looked up."""
        return self.in_flight < self._config.connections and not self._dns.is_busy

    def send(self, slot: Slot, job: Job, now: float) -> None:
        """Find the address, take the turns, and hand over to the transport."""
        if self._config.proxy:
            literal = literal_address(slot.host)
            if literal is not None and not self._filter.allows(literal):
                self._answers.unsendable(slot, job, Outcome.ADDRESS_REFUSED, f"address {literal} is refused")
            else:
                self._start(slot, job, None)
            return
        if slot.addresses_until <= now and not self._find_addresses(slot, job):
            return
        address = slot.address
        assert address is not None
        if self._config.ip_delay_s > 0:
            gate = self._gates.get(address)
            if gate is None:
                gate = self._gates[address] = Gate(address)
            slot.in_flight += 1  # it waits for the gate, and does nothing else
            gate.waiting.append((slot, job))
            if not gate.in_heap:
                self.open(gate)
            return
        self._take_turn(slot, job)

    def open(self, gate: Gate) -> None:
        """Let the first slot of a gate go if the IP's turn is ours."""
        if not gate.waiting:
            return
        wait_s = self._turns.reserve(f"ip {gate.address}", self._config.ip_delay_s)
        if wait_s <= 0:
            slot, job = gate.waiting.popleft()
            slot.in_flight -= 1
            wait_s = self._config.ip_delay_s
            self._take_turn(slot, job)
            self._crew.schedule(slot)
        if gate.waiting:
            self._heap.push(gate, self._clock() + wait_s)
        else:
            self._gates.pop(gate.address, None)  # the turn itself is in the table

    def _take_turn(self, slot: Slot, job: Job) -> None:
        """Take the host's turn among the node's processes (redirects of robots.txt cross the hosts' division)."""
        if slot.delay_s > 0 or self._config.adaptive_delay_factor is not None:
            # A transfer that was paused for room may last twice its time limit.
            wait_s = self._turns.reserve(f"host {slot.host}", 2 * self._config.time_limit_s + slot.delay_s)
            if wait_s > 0:
                slot.parked.insert(0, job)
                slot.not_before = self._clock() + wait_s
                return
        self._start(slot, job, slot.address)

    def _start(self, slot: Slot, job: Job, address: str | None) -> None:
        self.in_flight += 1
        slot.in_flight += 1
        is_robots = job.robots_for is not None
        ask = Ask(
            job.url,
            job.site.scheme_end,
            job.site.path_start,
            address,
            self._config.max_robots_bytes if is_robots else self._config.max_body_bytes,
            None if is_robots else self._mime_types,
            False,
            self._before_send if self._config.ip_delay_s > 0 and address is not None else None,
        )
        self._transport.start(ask, partial(self._crew.replied, slot, job))

    def _before_send(self, ip: str) -> None:
        # A connection took its time to stand: the IP's delay runs from the request.
        self._turns.put(f"ip {ip}", self._config.ip_delay_s)

    def _find_addresses(self, slot: Slot, job: Job) -> bool:
        answer = self._dns.get(slot.host)
        if answer is not None:
            return self._use_answer(slot, job, answer)
        slot.in_flight += 1  # no other request of the host meanwhile
        self._dns.look_up(slot.host, partial(self._looked_up, slot, job))
        return False

    def _looked_up(self, slot: Slot, job: Job, answer: Answer) -> None:
        def go_on() -> None:
            slot.in_flight -= 1
            if self._use_answer(slot, job, answer):
                slot.parked.insert(0, job)
            self._crew.schedule(slot)
            self._crew.pump()

        if not self._crew.is_over():
            self._crew.guarded(go_on)

    def _use_answer(self, slot: Slot, job: Job, answer: Answer) -> bool:
        """Choose an address for the slot; False if there is none, and the job has been dealt with."""
        if not answer.addresses:
            job.tries += 1
            row = self._retries[Trouble.DNS_TEMPORARY if answer.temporary else Outcome.DNS_FAILED]
            if job.tries < row.max_tries:
                self._answers.put_back(slot, job, row, row.wait_s)
            else:
                self._answers.unsendable(slot, job, Outcome.DNS_FAILED, one_line(f"{slot.host}: {answer.error}"))
            return False
        allowed = tuple(address for address in answer.addresses if self._filter.allows(address))
        if not allowed:
            refused = ", ".join(answer.addresses[:4])
            self._answers.unsendable(slot, job, Outcome.ADDRESS_REFUSED, f"address {refused} is refused")
            return False
        slot.addresses = allowed
        slot.addresses_until = max(answer.expires, self._clock() + 1.0)
        if slot.address not in allowed:
            slot.address = allowed[slot.address_turn % len(allowed)]
        return True
