"""The way of a request: the host's address, the turns of IP and host, the transport, and the effects of the answer.

An answer, or a failure, is reported, or its URL is tried again; its host rests, or is given up.
"""

import heapq
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count, islice
from typing import Protocol

from crawl_lib.config import FetchConfig
from crawl_lib.dataclass import dataclass
from crawl_lib.fetch.address import AddressFilter, refusal
from crawl_lib.fetch.again import back_off_s, retry_after_s, retry_at
from crawl_lib.fetch.classify import Failure, one_line
from crawl_lib.fetch.dns import DnsCache, Resolved, SystemResolver, literal_address
from crawl_lib.fetch.hosts import Host, Hosts, IpGate, Job
from crawl_lib.fetch.hoststore import NO_BACK_OFF, BackOff
from crawl_lib.fetch.retry import HOST_GIVES_UP_AFTER, Retry, Trouble
from crawl_lib.fetch.robots import RobotsPace, RobotsRules
from crawl_lib.fetch.transport import Transport
from crawl_lib.fetch.turns import START_S, Turns
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome

_BUSY = (Trouble.TOO_MANY_REQUESTS, Trouble.UNAVAILABLE)
"""Answers of a host that wants to be left alone."""
LAPSED_S = 0.25
"""The pause before a host is looked at again whose lease has lapsed."""
MOST_LAPSES = 40
"""Tries, with such pauses, for a redirect of robots.txt to another host."""
_FEW_HOSTS = 16
"""Number of hosts of one address to reserve at once, if nodes share hosts."""


_Fail = Callable[[BaseException], None]
_Allow = Callable[[str, str], bool]


class Caller(Protocol):
    """Who asked for the run: gets the fetched answer, and says how long to go on. An exception of the caller ends the
    run.
    """

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        """Take the outcome of a URL, and when to try again.

        The method is called once for each URL.
        """

    def on_robots(self, fetched: Fetched) -> None:
        """Take an answer for robots.txt, or the final failure.

        Each redirect hop is an answer of its own.
        """

    def objection(self, taken: TakenUrl) -> str:
        """Say why the next URL is not to be fetched.

        "": the URL is fetched. The text is the error of the outcome `filtered`.
        """

    def stop(self) -> bool:
        """Return whether to abandon all requests in flight at once.

        Asked every 50 ms.
        """

    def close(self) -> bool:
        """Return whether no request may start any more.

        Requests in flight still end. Asked every 50 ms.
        """


@dataclass(frozen=True)
class Seams:
    """Replacements by tests for clocks, resolver and network.

    `resolver` and `carrier` make theirs on the running loop.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    resolver: Callable[[], SystemResolver] = SystemResolver
    carrier: Callable[[FetchConfig, _Fail, _Allow | None], Transport] = Transport


class Dispatch:
    """The requests of one run. All methods belong to the loop's thread.

    `act`: makes a change to the run, then starts what is ready; nothing once the run is over. `fail`: ends the run with
    an error. `retries`: actions after each failure. `in_flight`: requests in the transport, or answered but not
    reported yet. `left`: unreported URLs. `may_send`: says whether a host may be asked now; None: each host
    may. A host waits while it may not be asked, and no connection is opened.
    """

    def __init__(
        self,
        hosts: Hosts,
        turns: Turns,
        caller: Caller,
        seams: Seams,
        *,
        retries: Mapping[Failure, Retry],
        act: Callable[[Callable[[], None]], None],
        fail: _Fail,
        may_send: Callable[[str], bool] | None = None,
    ) -> None:
        self.in_flight = 0
        self.left = 0
        self.robots = RobotsRules(hosts, caller.on_robots)
        self.robots_pace = RobotsPace(hosts, turns)
        self._hosts = hosts
        self._turns = turns
        self._caller = caller
        self._act = act
        self._config = config = hosts.config
        self._clock = seams.clock
        self._retries = retries
        self._filter = AddressFilter(config.allow_networks)
        self._gates: dict[str, IpGate] = {}
        self._spans = turns.spans
        self._parked: dict[str, tuple[Host, Job]] = {}
        if self._spans is not None:
            self._spans.given = lambda name, begins_s: act(partial(self._given, name, begins_s))
        self._numbers = count()
        self.dns = DnsCache(config.dns_ttl_s, config.dns_timeout_s, seams.clock, seams.resolver)
        self._may_send = may_send or (lambda host: True)
        self._has_gates = config.ip_delay_s > 0 and not config.proxy
        before_send = self._before_send if self._has_gates or may_send else None
        self._transport = seams.carrier(config, fail, before_send)

    def most_in_flight(self) -> int:
        """Return the limit of requests in flight.

        Each slot has one request; slow requests have left their slots and come on top.
        """
        return self._config.connections + self._transport.slow

    def close(self) -> None:
        """Abandon running requests, without calling back."""
        self._transport.close()
        self.dns.close()
        for host in self._hosts.begun.values():
            if host.in_flight:
                self._rest(host)  # the server may be busy with it still

    # -- there ----------------------------------------------------------------------------------------------------

    def send(self, host: Host, job: Job, now: float) -> None:
        """Find the address, take the turns, and hand over to the transport."""
        is_proxys = (
            self._config.proxy and literal_address(host.name) is None
        )  # a name is the proxy's to look up
        if not is_proxys and host.addresses_until <= now and not self._find_addresses(host, job):
            return
        if self._is_shared(host):
            host.connections = 1
        if self._config.ip_delay_s > 0 and not is_proxys:
            assert host.address is not None
            gate = self._gates.get(host.address)
            if gate is None:
                gate = self._gates[host.address] = IpGate(host.address)
            host.in_flight += 1  # the host waits for the gate only
            gate.waiting.append((host, job))
            if not gate.in_heap:
                self.open(gate)
        elif self._spans is None or not self._waits_for_nodes(host, job):
            self._take_turn(host, job)

    def open(self, gate: IpGate) -> None:
        """Send a request of a gate on the address's turn.

        The first allowed host goes.
        """
        if not gate.waiting:
            return
        name, wait_s, more_s, place = f"ip {gate.address}", 0.0, 0.0, 0
        if self._spans is not None and self._spans.addresses:
            wait_s, more_s = self._spans.wait_s(name, self._clock(), self._wanted(gate)), START_S
            if wait_s <= 0:
                wait_s, place = self._next_of(gate)
            if wait_s == math.inf:  # until it, or one of the hosts, is `_given`
                return
        if wait_s <= 0:
            wait_s = self._turns.reserve(name, self._config.ip_delay_s + more_s)
        if wait_s <= 0:
            host, job = gate.waiting[place]
            del gate.waiting[place]
            host.in_flight -= 1
            host.address = gate.address  # another request of the host may have chosen another one
            wait_s = self._config.ip_delay_s
            self._take_turn(host, job)
            self._hosts.schedule(host)
        if gate.waiting:
            self._hosts.push(gate, self._clock() + wait_s)
        else:
            self._gates.pop(gate.address, None)  # the turn itself is in the table

    def _wanted(self, gate: IpGate) -> int:
        """Count the requests that may follow on a gate's address.

        These are the waiting hosts, and the URLs of hosts without a delay. A host without a delay asks for the next URL
        as soon as an answer came. With one turn at a time, each URL would wait for a span.
        """
        few = (host for host, _ in islice(gate.waiting, _FEW_HOSTS))
        return len(gate.waiting) + sum(len(host.pages) for host in few if not self._is_polite(host))

    def _next_of(self, gate: IpGate) -> tuple[float, int]:
        """Find the waiting host of a gate that may go first.

        Returns the seconds until then, and the place of the host among waiting hosts. Only few hosts are asked for,
        and only now: none is ours for long, and many may wait for one address.
        """
        few = enumerate(islice(gate.waiting, _FEW_HOSTS))
        return min((self._host_wait_s(host), place) for place, (host, _) in few)

    def _given(self, name: str, begins_s: float) -> None:
        """Go on with the request that waited for a name's turn."""
        if name in self._parked:
            host, job = self._parked.pop(name)
            host.in_flight -= 1
            self._come_back(host, job, begins_s)
            self._hosts.schedule(host)
            return
        begun = self._hosts.begun.get(name.removeprefix("host "))
        address = begun.address if begun is not None else name.removeprefix("ip ")
        if address in self._gates:
            self._hosts.push(self._gates[address], begins_s)

    def _waits_for_nodes(self, host: Host, job: Job) -> bool:
        """Return whether a request waits for its host's turn among nodes.

        Only a request that needs no turn of an IP is asked about. The request comes again when the turn is given.
        """
        wait_s = self._host_wait_s(host)
        if wait_s == math.inf:
            self._parked[f"host {host.name}"] = host, job
            host.in_flight += 1  # no other request of the host meanwhile
        elif wait_s > 0:
            self._come_back(host, job, self._clock() + wait_s)
        return wait_s > 0

    def _host_wait_s(self, host: Host) -> float:
        """Return the seconds until this node has a host's turn.

        See `Spans.wait_s`.
        """
        if self._spans is None or not self._is_shared(host):
            return 0.0
        return self._spans.wait_s(f"host {host.name}", self._clock())

    def _is_shared(self, host: Host) -> bool:
        return self._spans is not None and self._spans.hosts and self._is_polite(host)

    def _is_polite(self, host: Host) -> bool:
        return host.delay_s > 0 or self._config.adaptive_delay_factor is not None

    def _come_back(self, host: Host, job: Job, when: float) -> None:
        host.urgent.insert(0, job)
        host.not_before = max(host.not_before, when)

    def _take_turn(self, host: Host, job: Job) -> None:
        """Take a host's turn among the processes of the node.

        Redirects of robots.txt lead to hosts of other processes.
        """
        if job.is_cancelled:
            return
        if host.ending is not None:  # since it was chosen, or since an earlier run
            self.end(job, *host.ending)
            return
        if not self._may_send(host.name):
            self._wait_for_lease(host, job)
            return
        if self._is_polite(host):
            # After a pause for room, a transfer may last twice the time limit.
            wait_s = self._turns.reserve(
                f"host {host.name}", 2 * self._config.time_limit_s + host.delay_s
            )
            if wait_s > 0:
                self._come_back(host, job, self._clock() + wait_s)
                return
        self._start(host, job)

    def _wait_for_lease(self, host: Host, job: Job) -> None:
        """Delay a request whose host has another fetcher.

        A redirect of robots.txt may lead to a host that this fetcher never gets; such a request fails after some tries.
        """
        job.lapses += 1
        if job.hops and job.lapses > MOST_LAPSES:
            self.end(job, Outcome.CONNECT_FAILED, "another fetcher has the lease of this host")
        else:
            self._come_back(host, job, self._clock() + LAPSED_S)

    def _start(self, host: Host, job: Job) -> None:
        self.in_flight += 1
        host.in_flight += 1
        job.tries += 1
        job.is_sent = True
        address = None if self._config.proxy else host.address
        self._transport.start(
            job, address, lambda *ended: self._act(partial(self._take, host, job, *ended))
        )

    def _before_send(self, ip: str, host: str) -> bool:
        if not self._may_send(host):
            return False
        if not self._has_gates:
            return True
        name, spans = f"ip {ip}", self._spans
        if spans is not None and spans.addresses and not spans.may_send(name, self._clock()):
            return False
        # It took time to connect: the IP's delay runs from the request.
        self._turns.put(name, self._config.ip_delay_s)
        return True

    def _find_addresses(self, host: Host, job: Job) -> bool:
        answer = self.dns.get(host.name)
        if answer is not None:
            return self._use_answer(host, job, answer)
        host.in_flight += 1  # no other request of the host meanwhile
        self.dns.look_up(
            host.name, lambda answer: self._act(partial(self._looked_up, host, job, answer))
        )
        return False

    def _looked_up(self, host: Host, job: Job, answer: Resolved) -> None:
        host.in_flight -= 1
        if self._use_answer(host, job, answer):
            host.urgent.insert(0, job)
        self._hosts.schedule(host)

    def _use_answer(self, host: Host, job: Job, answer: Resolved) -> bool:
        """Choose an address for the host.

        Returns False without one: the job was then delayed or ended.
        """
        if not answer.addresses:
            job.tries += 1
            row = self._retries[Trouble.DNS_TEMPORARY if answer.temporary else Outcome.DNS_FAILED]
            if job.tries < row.max_tries:
                self._put_back(host, job, row, row.wait_s)
            else:
                self._unsendable(
                    host, job, Outcome.DNS_FAILED, one_line(f"{host.name}: {answer.error}")
                )
            return False
        allowed = tuple(address for address in answer.addresses if self._filter.allows(address))
        if not allowed:
            self._unsendable(host, job, Outcome.ADDRESS_REFUSED, refusal(answer.addresses[:4]))
            return False
        host.addresses = allowed
        host.addresses_until = max(answer.expires, self._clock() + 1.0)
        if host.address not in allowed:
            host.address = allowed[host.address_turn % len(allowed)]
        return True

    # -- and back -------------------------------------------------------------------------------------------------

    def _take(self, host: Host, job: Job, fetched: Fetched, failure: Failure) -> None:
        """Handle the end of a sent request."""
        self.in_flight -= 1
        host.in_flight -= 1
        job.is_sent = False
        row, was_cut = self._retries[failure], self._was_cut(job)
        if failure is Trouble.TURN_OVER and not self._may_send(host.name):
            job.tries -= 1
            self._put_back(host, job, row, LAPSED_S)
            self._rest(host)
            self._hosts.schedule(host)
            return
        job.spent_s += fetched.duration_ms / 1000
        if (
            self._spans is not None and not fetched.request
        ):  # the turn was taken until it would be sent
            self._turns.put(f"ip {host.address}", self._config.ip_delay_s)
        if not was_cut:
            self._note_failure(host, fetched, row)
        asked_s = retry_after_s(fetched.head, self._hosts.wall()) if failure in _BUSY else 0.0
        may_wait = asked_s <= self._config.max_crawl_delay_s and not job.is_given_up()
        if job.tries < row.max_tries and host.ending is None and may_wait:
            self._put_back(host, job, row, max(row.wait_s, asked_s))
        else:
            if (
                failure in _BUSY and job.taken is None
            ):  # without robots.txt no page is tried: that costs a retry
                self._give_up(
                    host,
                    Outcome.ROBOTS_UNREACHABLE,
                    f"robots.txt: status {fetched.status}",
                    asked_s,
                )
            elif failure in _BUSY:
                self._give_up(host, Outcome.HOST_GAVE_UP, f"after status {fetched.status}", asked_s)
            elif job.taken is not None and fetched.status and row.passes_s is None:
                self._note_success(host)
            self._note_asked(host, fetched, row)
            self._report(job, fetched)
        self._rest(host, (fetched.duration_ms + 0.5) / 1000)  # it may have been rounded down
        self._hosts.schedule(host)

    def _was_cut(self, job: Job) -> bool:
        """Return whether a request had too little time to judge its host."""
        return job.left_s() < min(self._config.connect_timeout_s, self._config.time_limit_s)

    def _note_asked(self, host: Host, fetched: Fetched, row: Retry) -> None:
        """Record how long a host asks to be left alone.

        Only passing failures count. `krake retry --now` respects this time.
        """
        asked_s = retry_after_s(fetched.head, fetched.time) if row.passes_s is not None else 0.0
        if asked_s:
            until = fetched.time + min(asked_s, self._hosts.retry.max_wait_s)
            self._hosts.store.note_asked(host.name, until)

    def _give_up(self, host: Host, outcome: Outcome, error: str, asked_s: float = 0.0) -> None:
        """End all requests of a host until its back-off is over.

        Waiting URLs end with `outcome`.
        """
        if host.ending is None:
            times = host.back_off.times
            for_s = back_off_s(times, asked_s, self._hosts.retry)
            self._hosts.give_up(host, (outcome, error), for_s)
            self._hosts.set_back_off(host, BackOff(self._hosts.wall() + for_s, times + 1))

    def _note_success(self, host: Host) -> None:
        if host.back_off.times and host.ending is None:
            self._hosts.set_back_off(host, NO_BACK_OFF)

    def end(self, job: Job, outcome: Outcome, error: str) -> None:
        """Report URLs without another request."""
        self._report(
            job, Fetched(job.url, self._hosts.wall(), outcome, attempts=job.tries, error=error)
        )

    def _unsendable(self, host: Host, job: Job, outcome: Outcome, error: str) -> None:
        """End a URL whose host cannot be reached.

        All URLs of the host end so until the name is looked up again.
        """
        self._hosts.give_up(host, (outcome, error), self._config.dns_ttl_s)
        self._report(job, Fetched(job.url, self._hosts.wall(), outcome, attempts=0, error=error))

    def _put_back(self, host: Host, job: Job, row: Retry, wait_s: float) -> None:
        """Try a request again later.

        If the failure is the host's, the request is the host's next. Otherwise other URLs go first.
        """
        when = self._clock() + wait_s
        if job.taken is not None and not row.of_host:
            heapq.heappush(host.later, (when, next(self._numbers), job))
        else:
            host.urgent.append(job)
            host.not_before = max(host.not_before, when)

    def _rest(self, host: Host, answer_s: float | None = None) -> None:
        """Begin the delay of a host.

        `answer_s`: the seconds that the last answer or failure took; None: the request was abandoned.
        """
        host.ended_at = self._clock()
        host.asked = self._hosts.wall()
        host.changed = True
        if answer_s is not None:
            host.note_answer(answer_s)
            factor = self._config.adaptive_delay_factor or 0.0
            host.rest_s = min(factor * answer_s, self._config.max_crawl_delay_s)
        if host.owed_s() > 0:
            self._turns.put(f"host {host.name}", host.owed_s())
        if self._spans is not None:
            self._spans.end(f"host {host.name}", host.owed_s())

    def _report(self, job: Job, fetched: Fetched) -> None:
        if job.taken is None:
            self.robots.answered(job, fetched)
            return
        if job.is_cancelled:
            return
        if fetched.outcome is not Outcome.OK:
            fetched.retry_at = self._retry_at(job.taken, self._hosts.host(job.site.host), fetched)
        fetched.spent_ms = round(1000 * job.spent_s)
        self.left -= 1
        self._caller.on_fetched(job.taken, fetched)

    def _retry_at(self, taken: TakenUrl, host: Host, fetched: Fetched) -> int | None:
        """Return when to try a failed URL again.

        In a live run an unrequested URL waits only for the host.
        """
        when = retry_at(fetched, taken.queued.retries, self._hosts.retry, host.back_off.until)
        if when is None or fetched.attempts or host.ending_until == math.inf:
            return when
        return math.ceil(self._hosts.wall() + host.ending_until - self._clock())

    def _note_failure(self, host: Host, fetched: Fetched, row: Retry) -> None:
        """Count a failure of a host, and give up after too many."""
        if not row.counts:
            host.failures = 0
            return
        host.failures += 1
        if len(host.addresses) > 1:
            host.address_turn += 1
            host.address = host.addresses[host.address_turn % len(host.addresses)]
        if host.failures >= HOST_GIVES_UP_AFTER:
            self._give_up(
                host,
                Outcome.HOST_GAVE_UP,
                one_line(f"after {host.failures} failed tries: {fetched.error}"),
            )
