# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is one sentence that says what to do, with the right exit status and without the token."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys

import pytest

from tests.grafana.conftest import TITLES
from tests.grafana.server import EDITOR, GrafanaStandIn, page
from tests.support.command_line import vllm_watch
from tests.support.http_servers import Talker, free_port
from tests.support.waiting import SECONDS


pytestmark = pytest.mark.slow


FLEET = "vllm-watch-fleet"
HEALTH = ("GET", "/api/health")
FOLDER = ("GET", "/api/folders/vllm-watch")
SAVE = ("POST", "/api/dashboards/db")
SECRET = "glsa_0123456789abcdef"
COMMAND = [sys.executable, "-m", "vllm_watch", "grafana"]


def as_json(status, body, **headers):
    """Return what answers with a JSON document."""
    return page(status, json.dumps(body).encode(), Content_Type="application/json", **headers)


@pytest.fixture
def closed_port():
    """A port on which nothing listens."""
    return free_port()


@pytest.mark.parametrize("action", ["push", "delete"])
class TestTokens:
    """A token is wrong, or may not do what is asked."""

    def test_wrong(self, command, grafana, action):
        """A wrong token is said to be wrong, is not shown, and nothing is changed."""
        ended = command(action, grafana.url, token=command.token(SECRET))

        said = f"vllm-watch: {grafana.url}: the token is wrong, expired or revoked (401: Invalid API key)\n"
        assert (1, said) == (ended.status, ended.err)
        assert SECRET not in ended.out + ended.err
        assert [] == grafana.writes

    def test_may_not_read(self, command, grafana, action):
        """A token that lacks a permission is told which."""
        grafana.tokens["glsa_less"] = ("sa", EDITOR - {"dashboards:read"})
        ended = command(action, grafana.url, token=command.token("glsa_less"))

        assert 1 == ended.status
        assert (
            f"vllm-watch: the token may not read the dashboard {FLEET} (403): give its service account the role "
            "Editor, or the permission dashboards:read\n"
        ) == ended.err
        assert [] == grafana.writes


def test_may_not_create_a_folder(command, grafana):
    """A token that may not create folders is told so, and no dashboard is pushed."""
    ended = command("push", grafana.url, token=command.token("glsa_viewer"))

    assert 1 == ended.status
    assert "the token may not create a folder (403)" in ended.err
    assert "folders:create" in ended.err
    assert {} == grafana.dashboards


class TestNoGrafana:
    """What answers is not Grafana, or nothing does; every action asks the same first."""

    def test_nothing_listens(self, command, closed_port):
        """A closed port is said to be one."""
        ended = command("push", f"http://127.0.0.1:{closed_port}")

        where = f"http://127.0.0.1:{closed_port}"
        said = f"vllm-watch: {where}: nothing listens at this address: is Grafana running, and is this its port?\n"
        assert (1, said) == (ended.status, ended.err)

    def test_no_such_host(self, command):
        """A name that nobody knows is said to be one."""
        ended = command("push", "http://grafana.invalid:3000")

        said = "vllm-watch: http://grafana.invalid:3000: the host's name is not known: check the URL\n"
        assert (1, said) == (ended.status, ended.err)

    @pytest.mark.parametrize(
        "answer",
        [
            page(200, b"<html>Sign in</html>"),
            page(502, b"<html>Bad gateway</html>"),
            page(200, b"{", Content_Type="application/json"),
            as_json(200, {"hello": "world"}),
        ],
        ids=["page", "gateway", "broken", "other"],
    )
    @pytest.mark.parametrize("where", [HEALTH, FOLDER], ids=["first", "later"])
    def test_something_else(self, command, grafana, answer, where):
        """A page of a proxy, broken JSON and other JSON are told from Grafana, and not repeated."""
        grafana.instead[where] = answer
        ended = command("push", grafana.url)

        assert 1 == ended.status
        assert f"vllm-watch: {grafana.url} does not answer as Grafana does, asked to read" in ended.err
        assert "html" not in ended.err
        assert [] == grafana.writes

    def test_a_wrong_path(self, command, grafana):
        """A path below which there is no Grafana is said to be wrong."""
        ended = command("push", f"{grafana.url}/nothing")

        assert 1 == ended.status
        assert f"{grafana.url}/nothing: there is no Grafana at this address: check its path" in ended.err

    @pytest.mark.parametrize("status", [302, 308])
    def test_a_redirect(self, command, grafana, status):
        """A redirect is not followed; where it leads is told, without what may be a secret in it."""
        grafana.instead[FOLDER] = page(status, b"", Location="https://sso.example/login?ticket=s3cret#now")
        ended = command("push", grafana.url)

        said = f"vllm-watch: {grafana.url} redirects to https://sso.example/login: give the final URL\n"
        assert (1, said) == (ended.status, ended.err)

    def test_a_server_that_is_silent(self, command):
        """A server that says nothing is waited for no longer than was said."""
        with Talker([]) as server:
            ended = command("push", f"http://127.0.0.1:{server.port}", "--timeout", 0.3)

        assert 1 == ended.status
        assert "did not answer within 0.3 s" in ended.err

    def test_terminal_sequences(self, command, grafana):
        """What the server says moves no cursor."""
        grafana.instead[HEALTH] = as_json(200, {"database": "ok", "version": "1\x1b[2J\u202e"})

        assert "Grafana 1\\x1b[2J\\u202e at" in command("push", grafana.url).out


class TestInTheMiddle:
    """What goes wrong on the way leaves a report of what is done and what is not."""

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (as_json(500, {"message": "Failed to save dashboard"}), "(500: Failed to save dashboard)"),
            (page(502, b"<html>"), "does not answer as Grafana does"),
        ],
        ids=["error", "gateway"],
    )
    def test_push(self, command, grafana, answer, words):
        """What was created is said, and what was not done; the next push does the rest."""
        saved = []

        def second(handler):
            if saved:
                answer(handler)
                return
            saved.append(handler)
            body = grafana.bodies[-1][1]
            as_json(200, grafana.answer("POST", "/api/dashboards/db", "glsa_editor", body))(handler)

        grafana.instead[SAVE] = second
        ended = command("push", grafana.url)

        assert 1 == ended.status
        assert 1 == len(ended.lines("created"))
        assert [f"not done: {title} ({grafana.url}/d/{uid})" for uid, title in list(TITLES.items())[1:]] == ended.lines(
            "not done"
        )
        assert words in ended.err
        grafana.instead.clear()
        again = command("push", grafana.url)
        assert (0, 1, 2) == (again.status, len(again.lines("unchanged")), len(again.lines("created")))

    def test_delete(self, command, grafana):
        """What was deleted is said, and what was not done."""
        command("push", grafana.url)
        grafana.instead["DELETE", "/api/dashboards/uid/vllm-watch-server"] = as_json(
            500, {"message": "database is locked"}
        )
        ended = command("delete", grafana.url)

        assert 1 == ended.status
        assert (1, 2) == (len(ended.lines("deleted")), len(ended.lines("not done")))
        assert "cannot delete the dashboard (500: database is locked)" in ended.err


@pytest.mark.needs_tool("openssl")
class TestTls:
    """A Grafana over TLS is trusted if its authority is."""

    @pytest.fixture
    def secure(self, tmp_path):
        """A Grafana with a certificate that signs itself, and that certificate."""
        made = tmp_path / "cert.pem"
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext"
        files = ["subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key.pem"), "-out", str(made)]
        subprocess.run([*command.split(), *files], check=True, capture_output=True, timeout=SECONDS)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, tmp_path / "key.pem")
        with GrafanaStandIn(tls=context) as server:
            yield server, made

    def test_trusted(self, command, secure):
        """With --ca-file it is pushed to."""
        server, certificate = secure

        assert 0 == command("push", server.url, "--ca-file", certificate).status
        assert set(TITLES) == set(server.dashboards)

    def test_not_trusted(self, command, secure):
        """Without, the token is not sent, and the way out is said."""
        server, _ = secure
        ended = command("push", server.url)

        assert 1 == ended.status
        assert f"vllm-watch: {server.url}: TLS failed (" in ended.err
        assert "give the certificate's authority with --ca-file" in ended.err
        assert [] == server.requests

    def test_a_bad_file(self, command, tmp_path):
        """A --ca-file that is missing or holds no certificate is named."""
        missing = command("push", "https://127.0.0.1:1", "--ca-file", tmp_path / "none.pem")
        empty = command("push", "https://127.0.0.1:1", "--ca-file", command.token("no certificate"))

        assert (2, f"vllm-watch: --ca-file: {tmp_path}/none.pem: no such file\n") == (missing.status, missing.err)
        assert 1 == empty.status
        assert 1 == len(empty.err.splitlines())


class TestWrongUse:
    """One sentence, exit 2, no traceback; none of this needs grafana-client."""

    @pytest.mark.parametrize(
        ("url", "sentence"),
        [
            ("ftp://grafana", "--url: expected a URL that starts with http:// or https://"),
            (
                f"http://admin:{SECRET}@grafana",
                "--url: a URL must not contain a user name or password; use --token-file",
            ),
            ("http://grafana/?orgId=1", "--url: expected Grafana's own address, with nothing after its path"),
        ],
    )
    def test_url(self, tmp_path, url, sentence):
        """A URL that cannot be is said to be wrong, and a password in it is not shown."""
        (tmp_path / "token").write_text(SECRET)
        result = run("push", "--url", url, "--token-file", tmp_path / "token")

        assert (2, "", f"vllm-watch: {sentence}\n") == result

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (None, "cannot be read: No such file or directory"),
            ("", "expected one token and nothing else"),
            (f"{SECRET}\nX-Header: 1", "expected one token and nothing else"),
            (f"token {SECRET}", "expected one token and nothing else"),
        ],
        ids=["missing", "empty", "two lines", "words"],
    )
    def test_token_file(self, tmp_path, text, reason):
        """A token file that cannot be used is named, and what is in it is not shown."""
        path = tmp_path / "token"
        if text is not None:
            path.write_text(text)

        assert (2, "", f"vllm-watch: --token-file: {path}: {reason}\n") == run("push", "--token-file", path)

    def test_without_grafana_client(self, tmp_path):
        """Without the extra it is said how to install it."""
        (tmp_path / "token").write_text(SECRET)
        hide = (
            "import sys; sys.modules['grafana_client'] = None\n"
            "from vllm_watch.cli.command_line import main; main(sys.argv[1:])"
        )
        command = [sys.executable, "-c", hide, "grafana", "push", "--token-file", str(tmp_path / "token")]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)

        said = "vllm-watch: grafana_client is not installed: in the sources, pip install '.[grafana]'\n"
        assert (2, said) == (result.returncode, result.stderr)


def run(*arguments):
    """Run the command as a user does; return its exit status and what it printed."""
    done = vllm_watch("grafana", *arguments)
    return done.returncode, done.stdout, done.stderr
