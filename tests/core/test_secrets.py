"""Which secrets are taken out, and what stays readable."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.secrets import RULES, mask_secrets

# Put together here, so that no scanner takes this file for a leak.
A, D, H = "aB3dE6gH" * 8, "0123456789" * 7, "0123456789abcdef" * 5


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        pytest.param("sk-ant-" + "api03-" + A, "Anthropic key", id="Anthropic"),
        pytest.param("sk-" + A[:48], "OpenAI key", id="OpenAI"),
        pytest.param("sk-" + "proj-" + A, "OpenAI key", id="OpenAI project"),
        pytest.param("sk-" + "or-v1-" + H[:64], "OpenRouter key", id="OpenRouter"),
        pytest.param("AKIA" + "ABCDEFGH234567XY", "AWS access key", id="AWS"),
        pytest.param("ghp_" + A[:36], "GitHub token", id="GitHub classic"),
        pytest.param("github_pat_" + A, "GitHub token", id="GitHub fine-grained"),
        pytest.param("glpat-" + A[:20], "GitLab token", id="GitLab"),
        pytest.param("xoxb-" + D[:12] + "-" + A[:24], "Slack token", id="Slack"),
        pytest.param("AIza" + A[:35], "Google API key", id="Google"),
        pytest.param("sk_" + "live_" + A[:24], "Stripe key", id="Stripe"),
        pytest.param("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH", "Hugging Face token", id="Hugging Face"),
        pytest.param("npm_" + A[:36], "npm token", id="npm"),
        pytest.param("pypi-" + "AgE" + A, "PyPI token", id="PyPI"),
        pytest.param("dckr_" + "pat_" + A[:27], "Docker Hub token", id="Docker Hub"),
        pytest.param("SG." + A[:22] + "." + A[:43], "SendGrid key", id="SendGrid"),
        pytest.param("SK" + H[:32], "Twilio key", id="Twilio"),
        pytest.param(D[:9] + ":AA" + A[:33], "Telegram bot token", id="Telegram"),
        pytest.param("eyJ" + A[:20] + ".eyJ" + A[:30] + "." + A[:40], "JSON web token", id="JWT"),
        pytest.param("hooks.slack.com/" + "services/T0/B0/" + A[:24], "Slack webhook", id="Slack webhook"),
        pytest.param("ya29." + A[:40], "Google OAuth token", id="Google OAuth"),
        pytest.param("dop_" + "v1_" + H[:64], "DigitalOcean token", id="DigitalOcean"),
        pytest.param("gsk_" + A[:52], "Groq key", id="Groq"),
        pytest.param("xai-" + A, "xAI key", id="xAI"),
        pytest.param("AGE-SECRET-" + "KEY-1" + ("QPZRY9X8" * 8)[:58], "age key", id="age"),
        pytest.param(
            f"-----BEGIN RSA {'PRIVATE'} KEY-----\nProc-Type: 4,ENCRYPTED\n\n{A}\n{A}\n"
            f"-----END RSA {'PRIVATE'} KEY-----",
            "private key",
            id="private key",
        ),
        pytest.param(f"-----BEGIN {'PRIVATE'} KEY-----\n{A}\n{A}", "private key", id="private key, cut off"),
    ],
)
def test_a_known_format_is_masked_wherever_it_stands(secret: str, kind: str) -> None:
    masked = mask_secrets(f"before {secret}")
    assert masked == f"before [secret: {kind}]"
    assert mask_secrets(masked) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        pytest.param(
            "postgres://bob:hunter2@db/x", "postgres://bob:[secret: password in a URL]@db/x", id="URL"
        ),
        pytest.param(
            "https://:tok3n@host", "https://:[secret: password in a URL]@host", id="URL without a user"
        ),
        pytest.param(
            "Authorization: Bearer abc.def-123", "Authorization: Bearer [secret: credentials]", id="header"
        ),
        pytest.param('"password": "s3cret-pass"', '"password": "[secret: password or key]"', id="JSON"),
        pytest.param(
            "export DB_PASSWORD=hunter22x", "export DB_PASSWORD=[secret: password or key]", id="environment"
        ),
        pytest.param("api_key: abc123def456", "api_key: [secret: password or key]", id="YAML"),
    ],
)
def test_what_is_named_a_secret_is_masked_and_its_name_stays(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked
    assert mask_secrets(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("password: string", id="a type"),
        pytest.param("token = get_token2(request)", id="a call"),
        pytest.param("max_tokens=40960000", id="a number of tokens"),
        pytest.param("secret_file: /etc/app/secret1.yml", id="a path"),
        pytest.param("git@github.com:a/b.git https://a.example:8080/x@y", id="addresses without a password"),
        pytest.param("commit 0123456789abcdef0123456789abcdef01234567", id="a commit"),
        pytest.param("task-sk-learn and disk-usage-of-the-first-twenty", id="words with sk-"),
        pytest.param("PASSWORD=$DB_PASSWORD1 token=${TOKEN1}", id="variables"),
        pytest.param("the tokenizer: o200k_base and passwords in general", id="prose"),
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_secrets(text) == text


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet="sk-eyJ._:/@=password \n-BEGINPRIVATE", max_size=200))
def test_nothing_raises_and_masking_twice_is_masking_once(text: str) -> None:
    assert mask_secrets(mask_secrets(text)) == mask_secrets(text)


@pytest.mark.parametrize(
    "piece",
    [
        "eyJaaaaaaaaa.",
        "sk-ant-",
        "password=",
        "a",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "token token_",
        "eyJ-",
        "1a",
    ],
)
def test_hostile_repeats_take_linear_time(piece: str) -> None:
    # Anything worse than linear would take minutes; no clock is needed to notice.
    mask_secrets(piece * (300_000 // len(piece)))


def test_every_rule_has_a_source_and_hints_in_lower_case() -> None:
    for rule in RULES:
        assert rule.source
        assert all(hint == hint.lower() for hint in rule.hints)
