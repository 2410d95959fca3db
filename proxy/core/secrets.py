"""
Take secrets out of what is written down about a conversation.

For notes and ledger only. The rules know documented formats of keys, and a few forms in
which passwords are written; they miss what has no form. Every pattern is bounded or
without choice, so that it takes linear time on hostile text.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One kind of secret.

    Attributes:
        kind: What stands in its place, as `[secret: kind]`.
        hints: Lower-case strings of which one must occur before the pattern is tried.
        pattern: What is replaced; where it has a group `keep`, that part stays.
        source: Where the format is documented.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    source: str


def _rule(kind: str, hints: str, pattern: str, source: str) -> Rule:
    return Rule(kind, tuple(hints.split()), re.compile(pattern), source)


_START = r"(?<![A-Za-z0-9_])"
_DOCS = "the vendor's documentation of its key format"
_GITHUB = "github.blog: behind GitHub's new authentication token formats"
_RFC = "RFC 7468, RFC 4716, RFC 9580"

RULES = (
    _rule(
        "private key",
        "private",
        r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*"
        r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?",
        _RFC,
    ),
    _rule("Anthropic key", "sk-ant-", _START + r"sk-ant-[A-Za-z0-9_-]{16,200}", _DOCS),
    _rule("OpenRouter key", "sk-or-", _START + r"sk-or-(?:v\d-)?[A-Za-z0-9]{16,128}", _DOCS),
    _rule(
        "OpenAI key",
        "sk-",
        _START + r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,256}|[A-Za-z0-9]{20,128})",
        _DOCS,
    ),
    _rule(
        "AWS access key",
        "akia asia abia acca",
        _START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])",
        "AWS IAM: unique identifiers, table of prefixes",
    ),
    _rule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", _START + r"gh[pousr]_[A-Za-z0-9]{36,255}", _GITHUB),
    _rule("GitHub token", "github_pat_", _START + r"github_pat_[A-Za-z0-9_]{36,255}", _GITHUB),
    _rule("GitLab token", "glpat- gldt- glrt- glptt-", _START + r"gl(?:pat|dt|rt|ptt)-[\w.-]{20,128}", _DOCS),
    _rule("Slack token", "xox xapp-", _START + r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,250}", _DOCS),
    _rule(
        "Slack webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,120}",
        _DOCS,
    ),
    _rule("Google API key", "aiza", _START + r"AIza[A-Za-z0-9_-]{35}", _DOCS),
    _rule("Google OAuth token", "ya29. gocspx-", _START + r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,256}", _DOCS),
    _rule(
        "Stripe key",
        "_live_ _test_ whsec_",
        _START + r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,128}",
        _DOCS,
    ),
    _rule("Hugging Face token", "hf_", _START + r"hf_[A-Za-z]{30,64}", _DOCS),
    _rule("npm token", "npm_", _START + r"npm_[A-Za-z0-9]{36}", "github.blog: npm's new token format"),
    _rule("PyPI token", "pypi-", _START + r"pypi-AgE[A-Za-z0-9_-]{50,300}", _DOCS),
    _rule("Docker Hub token", "dckr_", _START + r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,64}", _DOCS),
    _rule("DigitalOcean token", "_v1_", _START + r"do[opr]_v1_[a-f0-9]{64}", _DOCS),
    _rule("SendGrid key", "sg.", _START + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", _DOCS),
    _rule("Twilio key", "sk", _START + r"SK[0-9a-f]{32}(?![0-9a-f])", _DOCS),
    _rule("Telegram bot token", ":aa", r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}", _DOCS),
    _rule("Groq key", "gsk_", _START + r"gsk_[A-Za-z0-9]{32,64}", _DOCS),
    _rule("xAI key", "xai-", _START + r"xai-[A-Za-z0-9]{32,128}", _DOCS),
    _rule("age key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{58}", "age's specification"),
    _rule(
        "JSON web token",
        "eyj",
        _START + r"eyJ[A-Za-z0-9_-]{8,512}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,2000}",
        "RFC 7519",
    ),
    _rule(
        "password in a URL",
        "://",
        r"(?P<keep>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@'\"<>]{0,128}:)"
        r"[^\s/@'\"<>$\[{]{1,128}(?=@)",
        "RFC 3986, section 3.2.1",
    ),
    _rule(
        "credentials",
        "authorization",
        r"(?i)(?P<keep>authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4})"
        r"[A-Za-z0-9+/_=.~-]{8,4096}",
        "RFC 9110, section 11.6.2; RFC 6750",
    ),
    # The last rule is a guess by name; a letter and a digit are asked for, so that types, calls,
    # counts and paths (`password: string`, `token=getToken()`, `tokens: 12345678`) stay readable.
    _rule(
        "password or key",
        "passw secret token apikey api_key api-key access_key pwd",
        r"(?i)(?P<keep>(?<![\w-])[\w-]{0,40}(?:passwo?r?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key)"
        r"(?:s|[_-][\w-]{0,20})?[\"']?\s{0,4}[:=]\s{0,4}[\"']?)(?![./~])(?=[^\s\"'\d]{0,128}\d)(?=[^\s\"'A-Za-z]{0,128}[A-Za-z])"
        r"[A-Za-z0-9+/_=.~!@#%^&*-]{6,512}(?![\w(])",
        "gitleaks' rule generic-api-key, narrowed",
    ),
)


def mask_secrets(text: str) -> str:
    """*text* with `[secret: kind]` in the place of each secret that a rule knows; never raises."""
    lower = text.lower()
    for rule in RULES:
        if any(hint in lower for hint in rule.hints):
            text = rule.pattern.sub(lambda match, rule=rule: _masked(match, rule), text)  # type: ignore[misc]
    return text


def _masked(match: re.Match[str], rule: Rule) -> str:
    kept = match.groupdict().get("keep") or ""
    return f"{kept}[secret: {rule.kind}]"
