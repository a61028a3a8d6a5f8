"""Calls models behind the gateway with OpenAI's client: whole, streamed, and beyond the budget."""

import sys

import openai


def client(user: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=sys.argv[1], api_key=user, max_retries=0)


def ask(user: str, model: str, tokens: int) -> None:
    asked = [{"role": "user", "content": "Say it."}]
    answer = client(user).chat.completions.create(model=model, messages=asked, max_tokens=tokens)
    print(user, model, "used", answer.usage.total_tokens)


def stream(user: str, model: str, tokens: int) -> None:
    asked = [{"role": "user", "content": "Say it."}]
    events = client(user).chat.completions.create(
        model=model, messages=asked, max_tokens=tokens, stream=True, stream_options={"include_usage": True}
    )
    used = [event.usage.total_tokens for event in events if event.usage]
    print(user, model, "streamed", used[-1])


ask("ada", "small", 400)
stream("ada", "small", 700)
try:
    ask("ada", "small", 10)
except openai.RateLimitError as error:
    wait = error.response.headers["retry-after"]
    print("ada small", error.status_code, error.code, "retry after", wait, "s")
stream("ada", "large", 50)
ask("bob", "small", 50)
