"""A real KDC and a certificate authority on this machine, and an HDFS that asks both: what a secured cluster has.

The KDC is Debian's krb5-kdc in a private directory, on a free port, without a daemon of the system: `KRB5_CONFIG` and
`KRB5_KDC_PROFILE` say all that it and its clients know. HDFS is secured as in production: Kerberos for RPC and (SPNEGO)
for WebHDFS, block access tokens, SASL between datanodes and their clients, WebHDFS over HTTPS only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from crawl_lib.storage.session import Negotiate
from tests.cluster.hdfs import Hdfs, die_with_parent
from tests.cluster.httpfs import HttpFs
from tests.ports import free_port

REALM = "KRAKE.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "openssl")
START_S = 240
_READY = "commencing operation"
KRB5_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[logging]
 kdc = FILE:{directory}/kdc.log
 default = FILE:{directory}/kdc.log
"""
KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  max_life = 1d
  max_renewable_life = 7d
 }}
"""


def _found(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")


def why_not() -> str:
    """Why a secured HDFS cannot be spoken to here, "" if it can."""
    try:
        import gssapi  # noqa: F401, PLC0415 - an extra
    except ImportError:
        return "the extra `kerberos` is not installed (make setup-kerberos)"
    missing = [program for program in PROGRAMS if _found(program) is None]
    packages = "krb5-kdc krb5-admin-server krb5-user openssl"
    return f"{', '.join(missing)} not installed (Debian: {packages})" if missing else ""


class Kdc:
    """A realm: its KDC, and the keys of its principals. Use as a context manager."""

    def __init__(self, directory: Path, realm: str = REALM) -> None:
        self.directory, self.realm = directory, realm
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        """krb5.conf of the realm's clients."""
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What tells the Kerberos library about the realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
        }

    def __enter__(self) -> Kdc:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(KRB5_CONF.format(**vars(self)))
        (self.directory / "kdc.conf").write_text(KDC_CONF.format(**vars(self)))
        self.run("kdb5_util", "create", "-s", "-r", self.realm, "-P", "master")
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC; it answers when this returns. It dies with the calling thread."""
        before = self._told().count(_READY)
        with (self.directory / "out.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(_found("krb5kdc")), "-n", "-r", self.realm],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for us alone
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one call, no lock
            )
        end = time.monotonic() + START_S
        while (told := self._told()).count(_READY) == before:
            assert self.process.poll() is None, f"no KDC: {told[-3000:]}"
            assert time.monotonic() < end, f"no KDC after {START_S} s: {told[-3000:]}"
            time.sleep(0.05)  # nothing tells that it is ready but its log

    def _told(self) -> str:
        return "".join(
            (self.directory / name).read_text()
            for name in ("out.log", "kdc.log")
            if (self.directory / name).exists()
        )

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def run(self, program: str, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run one of Kerberos' programs in this realm."""
        environment = os.environ | self.environment | (env or {})
        done = subprocess.run(
            [str(_found(program)), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def keytab(self, *principals: str) -> Path:
        """A file with the keys of principals (`name` or `service/host`), which are made the first time."""
        path = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        if path.exists():
            return path
        for principal in principals:
            self.run("kadmin.local", "-r", self.realm, "addprinc", "-randkey", principal)
            self.run("kadmin.local", "-r", self.realm, "ktadd", "-k", str(path), principal)
        return path

    def ticket(self, principal: str, cache: Path, *options: str) -> None:
        """Get a ticket by the principal's keytab into a cache. `options` of kinit, such as `-l 5s`."""
        keytab = self.directory / f"{principal.replace('/', '-')}.keytab"
        self.run(
            "kinit",
            *options,
            "-k",
            "-t",
            str(keytab),
            "-c",
            f"FILE:{cache}",
            f"{principal}@{self.realm}",
        )


class Authority:
    """A certificate authority in a directory: `ca_file`, and what it gives a server on this machine."""

    def __init__(self, directory: Path, name: str = "Krake's tests") -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self._openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name}"
        )

    @property
    def ca_file(self) -> Path:
        """The authority's certificate."""
        return self.directory / "ca.pem"

    def keystore(self, password: str) -> Path:
        """Key and certificate of 127.0.0.1, as Java reads them."""
        (self.directory / "san").write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(
            "req",
            *_NEW_KEY,
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
            "-subj",
            "/CN=127.0.0.1",
        )
        signed = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "7",
            "-extfile",
            "san",
        )
        self._openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
        both = ("-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem")
        self._openssl(
            "pkcs12", "-export", *both, "-out", "server.p12", "-passout", f"pass:{password}"
        )
        return self.directory / "server.p12"

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7")
_PASSWORD = "changeit"  # of the servers' keystore, which is made for one run
SSL_SERVER = """<configuration>
<property><name>ssl.server.keystore.location</name><value>{keystore}</value></property>
<property><name>ssl.server.keystore.type</name><value>pkcs12</value></property>
<property><name>ssl.server.keystore.password</name><value>{password}</value></property>
<property><name>ssl.server.keystore.keypassword</name><value>{password}</value></property>
</configuration>
"""


class _Administrator(Negotiate):
    """The user who started HDFS: a ticket of its own, whatever ticket the tests have."""

    def __init__(self, kdc: Kdc, cache: Path) -> None:
        super().__init__()
        self._kdc, self._cache = kdc, cache

    def credentials(self) -> Any:
        if not self._cache.exists():
            self._kdc.ticket("hdfs/localhost", self._cache)
        return self._gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{self._cache}"})


class SecureHdfs(Hdfs):
    """HDFS in the realm of a KDC, by HTTPS only. The user `krake` owns /krake; the KDC has its keytab.

    `cookie_s`: how long a namenode lets in who has shown a ticket once.
    """

    scheme = "https"

    def __init__(
        self,
        directory: Path,
        kdc: Kdc,
        authority: Authority,
        namenodes: int = 1,
        cookie_s: int = 36_000,
    ) -> None:
        super().__init__(directory, namenodes)
        self.kdc, self.authority, self.cookie_s = kdc, authority, cookie_s
        self.java_options = (f"-Djava.security.krb5.conf={kdc.config}",)
        self._keystore = authority.keystore(_PASSWORD)
        self.keytab = kdc.keytab("hdfs/localhost", "HTTP/127.0.0.1")
        kdc.keytab("krake")
        self._administrator = _Administrator(kdc, directory / "administrator")
        self.environment = {
            "KRB5CCNAME": str(directory / "administrator")
        }  # for Java, which knows no FILE:
        self.session.trust_env = False  # else REQUESTS_CA_BUNDLE comes before what is said here
        self.session.verify = str(authority.ca_file)
        self.session.auth = self._administrator

    def administrator(self) -> str:
        """See Hdfs."""
        return ""  # the ticket says it

    def tool(
        self, name: str, main: str, *arguments: str, answer: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """See Hdfs. By the administrator's ticket."""
        self._administrator.credentials()
        return super().tool(name, main, *arguments, answer=answer)

    def security(self, folder: Path) -> set[tuple[str, str]]:
        """As https://hadoop.apache.org/docs/r3.4.2/hadoop-project-dist/hadoop-common/SecureMode.html says."""
        (folder / "ssl-server.xml").write_text(
            SSL_SERVER.format(keystore=self._keystore, password=_PASSWORD)
        )
        server, web = f"hdfs/localhost@{self.kdc.realm}", f"HTTP/127.0.0.1@{self.kdc.realm}"
        options = {
            ("hadoop.security.authentication", "kerberos"),
            ("hadoop.security.authorization", "true"),
            ("dfs.block.access.token.enable", "true"),
            ("dfs.data.transfer.protection", "authentication"),
            ("dfs.http.policy", "HTTPS_ONLY"),
            (
                "hadoop.http.filter.initializers",
                "org.apache.hadoop.security.AuthenticationFilterInitializer",
            ),
            ("hadoop.http.authentication.type", "kerberos"),
            ("hadoop.http.authentication.kerberos.principal", web),
            ("hadoop.http.authentication.kerberos.keytab", str(self.keytab)),
            ("hadoop.http.authentication.token.validity", str(self.cookie_s)),
            ("dfs.web.authentication.kerberos.principal", web),
            ("dfs.web.authentication.kerberos.keytab", str(self.keytab)),
            # For a gateway, which has a ticket of the same user.
            ("hadoop.proxyuser.hdfs.hosts", "*"),
            ("hadoop.proxyuser.hdfs.groups", "*"),
        }
        for service in ("namenode", "datanode"):
            options.add((f"dfs.{service}.kerberos.principal", server))
            options.add((f"dfs.{service}.keytab.file", str(self.keytab)))
        return options


class SecureHttpFs(HttpFs):
    """A gateway that asks for a ticket, and shows one of its own; by plain HTTP."""

    _hdfs: SecureHdfs

    def options(self, folder: Path) -> dict[str, str]:
        """As https://hadoop.apache.org/docs/r3.4.2/hadoop-hdfs-httpfs/ServerSetup.html says."""
        return super().options(folder) | {
            "hadoop.http.authentication.type": "kerberos",
            "httpfs.hadoop.authentication.type": "kerberos",
            "httpfs.hadoop.authentication.kerberos.principal": f"hdfs/localhost@{self._hdfs.kdc.realm}",
            "httpfs.hadoop.authentication.kerberos.keytab": str(self._hdfs.keytab),
        }
