# SPDX-License-Identifier: Apache-2.0
"""Where vLLM prints what is private: each place makes the lines of a log that hold a given text."""
# ruff: noqa: E501  # Lines as vLLM prints them.

from __future__ import annotations

import json

from hypothesis import strategies as st


HEAD = "(APIServer pid=7) INFO 11-21 02:35:12 [{site}:40] "
MARK = "Zq7mark"
STATISTICS = (
    "(APIServer pid=7) INFO 11-21 02:35:20 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
    "Prefix cache hit rate: 0.0%"
)
TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", max_size=20)
"""What a key is made of."""

IDS = st.text("abcdef0123456789-_.:/", max_size=20)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "', params: SamplingParams(n=1), ", "\n", '\nINFO:     1.2.3.4:5 - "GET / HTTP/1.1" 200 OK\n', "']\"}", "\\",
            '\nTraceback (most recent call last):\n  File "x.py", line 1, in f\n    ', ": output: 'x', finish_reason: stop",
            "\n" + STATISTICS, "\n(APIServer pid=7) INFO 11-21 02:35:12 [logger.py:40] ", "', 'b': [", "Request x failed ",
        ]
    ),
)  # fmt: skip
"""What a prompt is made of: also what looks like vLLM's own text."""


def record(message: str, site: str = "logger.py", level: str = "INFO") -> str:
    """Return a record as vLLM prints it: its head on each of its lines."""
    head = HEAD.format(site=site).replace("INFO", level)
    return (head + message).replace("\n", "\r\n" + head)


def in_json(message: str, **fields: str) -> str:
    """Return a record as vLLM's JSON formatter prints it."""
    return json.dumps(
        {"asctime": "2026-11-21 02:35:12,1", "name": "vllm.x", "levelname": "INFO", "message": message, **fields}
    )


def dict_of(**items: object) -> dict[str, object]:
    """Return a dictionary: its text has braces, which an f-string cannot hold."""
    return items


PROMPTS = {
    "0.5": lambda secret: record(f"Received request cmpl-1: prompt: {secret!r}, params: SamplingParams(n=1), prompt_token_ids: [1], lora_request: None."),
    "stop": lambda secret: record(f"Received request cmpl-1: params: SamplingParams(n=1, stop=[{secret!r}], seed=None), lora_request: None."),
    "details": lambda secret: record(f"Request cmpl-1 details: prompt: {secret!r}, prompt_token_ids: [1], prompt_embeds shape: None.", "request_logger.py", "DEBUG"),
    "body": lambda secret: record("Request cmpl-1 JSON body: " + json.dumps({"prompt": secret}), "request_logger.py", "DEBUG"),
    "output": lambda secret: record(f"Generated response cmpl-1 (streaming complete): output: {secret!r}, finish_reason: stop"),
    "response": lambda secret: record("response_body={" + json.dumps({"choices": [{"text": secret}]}) + "}", "log_response.py"),
    "streamed": lambda secret: record(f"response_body={{streaming_complete: content={secret!r}, chunks=3}}", "server_utils.py"),
    "bare lines": lambda secret: record("Received request cmpl-1: prompt: ") + "\nhello\n" + secret.replace("\n", " "),
    "tool": lambda secret: record(f"Failed to parse tool call: {secret}", "hermes_tool_parser.py", "ERROR"),
    "tool traceback": lambda secret: record(f"Error in extracting tool call from response {secret!r}", "openai_tool_parser.py", "ERROR"),
    "bad request": lambda secret: record(f"Request cmpl-1 failed (bad request): {secret}.", "async_llm.py"),
    "fields": lambda secret: record(f"The following fields were present in the request but ignored: {{{secret!r}}}", "protocol.py", "WARNING"),
    "serving": lambda secret: record(f"Error in preprocessing prompt inputs: {secret}", "serving_chat.py", "ERROR"),
    "dump": lambda secret: record(
        f"Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-1,"
        f"prompt={secret!r},prompt_token_ids=[1, 2],mm_inputs=[])], total_num_scheduled_tokens=3)", "dump_input.py", "ERROR"),
    "validation": lambda secret: "\n".join([
        "ERROR:    Exception in ASGI application", "Traceback (most recent call last):",
        "pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest",
        f"  Input should be a valid string [type=string_type, input_value={[{'role': 'user', 'content': secret}]!r}, input_type=list]"]),
    "exception": lambda secret: "\n".join([
        "ERROR:    Exception in ASGI application", "Traceback (most recent call last):", '  File "x.py", line 1, in f',
        f"ValueError: {secret!r} is not valid"]),
    "message": lambda secret: record(f"ValueError: invalid message {dict_of(role='user', content=secret)!r}", "core.py", "ERROR"),
    "json": lambda secret: in_json(f"Received request cmpl-1: prompt: {secret!r}, params: SamplingParams(n=1)", name="vllm.entrypoints.logger"),
    "json traceback": lambda secret: in_json("Error", exc_info=f"Traceback\nValueError: {dict_of(messages=[secret])!r}"),
}  # fmt: skip
ID_PLACES = {
    "added": lambda secret: record(f"Added request {secret}.", "async_llm.py"),
    "received": lambda secret: record(f"Received request {secret}: params: SamplingParams(n=1), lora_request: None."),
    "aborted": lambda secret: record(f"Aborted request(s) {secret},b.", "async_llm.py"),
    "failed": lambda secret: record(f"Request {secret} failed (engine dead).", "async_llm.py"),
    "internal": lambda secret: record(f"Request {secret} failed with an internal error during generation", "serving.py", "ERROR"),
    "full": lambda secret: record(f"Request queue full - rejecting request {secret} (current=8, n=1, max=8).", "async_llm.py"),
    "caught": lambda secret: record(f"Engine Exception caught. Request id: {secret}", "vllm_error.py", "ERROR"),
    "output": lambda secret: record(f"Generated response {secret}: output: 'x', finish_reason: stop"),
    "dump": lambda secret: record(
        f"Dumping scheduler output for model execution: SchedulerOutput(num_scheduled_tokens={{{secret}: 4}}, "
        f"finished_req_ids=[{secret!r}], total_num_scheduled_tokens=3)", "dump_input.py", "ERROR"),
}  # fmt: skip
KEY_PLACES = {
    "list": lambda key: record(f"non-default args: {{'model': 'm', 'api_key': ['{key}', 'b'], 'port': 1}}", "utils.py"),
    "namespace": lambda key: record(f"args: Namespace(host=None, api_key='{key}', hf_token='{key}', port=1)", "api_server.py"),
    "option": lambda key: f"+ vllm serve m --api-key {key} --port 1",
    "options": lambda key: f"vllm serve m --api-key={key} --hf-token {key}",
    "argv": lambda key: record(f"argv: ['vllm', 'serve', '--api-key', '{key}', '--hf-token={key}']", "utils.py"),
    "header": lambda key: f"> Authorization: Bearer {key}",
    "headers": lambda key: record(f"headers: {{'authorization': 'Bearer {key}', 'x-api-key': '{key}'}}", "utils.py"),
    "bearer": lambda key: record(f"sent Bearer {key}", "utils.py"),
    "environment": lambda key: f"VLLM_API_KEY={key}\nHF_TOKEN={key}\nexport AWS_SECRET_ACCESS_KEY='{key}'",
    "openai": lambda key: f"warning: the key sk-{key}0123456789 is old",
    "hub": lambda key: record(f"token hf_{key.replace('-', '').replace('_', '')}0123456789abcdefgh was rejected", "hub.py", "ERROR"),
    "url": lambda key: record(f"downloading https://user:{key}@example.com/model", "hub.py"),
    "query": lambda key: f'INFO:     127.0.0.1:5 - "GET /v1/models?api_key={key} HTTP/1.1" 200 OK',
    "json": lambda key: in_json("args", api_key=key),
}  # fmt: skip
ADDRESSES = {
    "access": lambda peer: f'INFO:     {peer}:5123 - "POST /v1/completions HTTP/1.1" 200 OK',
    "process": lambda peer: f'(APIServer pid=7) INFO:     {peer}:5123 - "GET /health HTTP/1.1" 200 OK',
    "coloured": lambda peer: f'\x1b[32mINFO\x1b[0m:     {peer}:5 - "\x1b[1mGET /ping HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m',
    "websocket": lambda peer: f'INFO:     (\'{peer}\', 5123) - "WebSocket /v1/realtime" [accepted]',
    "forwarded": lambda peer: record(f"headers: {{'x-forwarded-for': '{peer}', 'x-real-ip': '{peer}'}}", "utils.py"),
    "json": lambda peer: json.dumps({"levelname": "INFO", "name": "uvicorn.access", "message": f'{peer}:5 - "GET /health HTTP/1.1" 200'}),
    "free text": lambda peer: record(f"request from {peer}, ip={peer}", "middleware.py"),
    "Ray": lambda peer: f"(RayWorkerWrapper pid=901, ip={peer}) INFO 11-21 02:35:12 [gpu_worker.py:1] Loading weights took 2 seconds",
    "print": lambda peer: f"accepted {peer} port 5123",
}  # fmt: skip
OTHERS = {
    "query": lambda secret: f'INFO:     127.0.0.1:5 - "GET /v1/models?user={secret}&level=1 HTTP/1.1" 200 OK',
    "unknown path": lambda secret: f'INFO:     127.0.0.1:5 - "GET /{secret} HTTP/1.1" 404 Not Found',
    "signed URL": lambda secret: record(f"fetching https://example.com/a.png?sig={secret}", "media.py"),
    "mail": lambda secret: record(f"user {secret}@example.com", "plugin.py"),
    "transcript": lambda secret: record(f"Transcribed text {secret}", "speech_to_text.py"),
    "conversation": lambda secret: record(f"conversation {secret}", "serving_responses.py"),
    "call": lambda secret: record(f"call with arguments {secret}", "hermes_tool_parser.py"),
    "cause": lambda secret: record(f"EngineCore encountered a fatal error.\nCUDA error: out of memory {secret}", "core.py", "ERROR"),
    "V0": lambda secret: record(f"RuntimeError('{secret}')", "engine.py", "ERROR"),
    "long JSON": lambda secret: in_json(f"Error executing method {secret} {'x' * 2000}", levelname="ERROR", exc_info=(
        f"RuntimeError: CUDA out of memory {secret}")),
    "other JSON": lambda secret: in_json("started", name="vllm.x", user=secret, context=secret),
    "plugin's metrics.py": lambda secret: record(f"user bob asked {secret}", "metrics.py"),
    "plugin's loggers.py": lambda secret: record(f"Engine 000: {secret}", "loggers.py"),
    "plugin's perf.py": lambda secret: record(secret, "perf.py"),
    "front end": lambda secret: record(f"Avg prompt throughput of {secret}", "log_stats.rs"),
    "after statistics": lambda secret: f"{STATISTICS} {secret}",
    "before a head": lambda secret: f"the password {secret} INFO 11-21 02:35:12 [tool.py:1] foo",
    "before statistics": lambda secret: f"{secret} {STATISTICS}",
    "syslog": lambda secret: "Nov 21 02:35:12 " + secret + " vllm[123]: " + record("Added request x", "async_llm.py"),
    "connector": lambda secret: record(
        "non-default args: {'kv_transfer_config': {'kv_connector': 'Nixl', 'extra': {'url': '" + secret + "'}}}", "utils.py"),
}  # fmt: skip
