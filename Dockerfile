# docker build -t compaction-proxy .
# docker run -p 127.0.0.1:8400:8400 -v compaction-proxy:/var/lib/compaction-proxy \
#     -e COMPACTION_PROXY_SERVER_OPEN=true \
#     -e COMPACTION_PROXY_UPSTREAM=http://host.docker.internal:8080 compaction-proxy
#
# In a container the proxy listens on every interface, so it starts only if it is said who may use
# it. OPEN=true is right where -p publishes the port to this machine alone, as above. For others
# give keys instead: -e COMPACTION_PROXY_SERVER_KEYS="$(openssl rand -hex 32)".
#
# A config.toml of your own is mounted over the default one:
#     -v ./config.toml:/etc/compaction-proxy/config.toml:ro

# Every file that is installed has the hash that stands in a lock (scripts/lock), and none brings
# code of its own to run meanwhile. The list of what is in the image (SBOM) is read with
#     docker run --rm --entrypoint cat compaction-proxy /opt/compaction-proxy/sbom.cdx.json

FROM python:3.13-slim AS build
RUN python -m venv /opt/build && python -m venv /opt/compaction-proxy
WORKDIR /src
COPY deploy/build.lock deploy/requirements.lock ./
RUN /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r build.lock \
    && /opt/compaction-proxy/bin/pip install --no-cache-dir --only-binary :all: --require-hashes \
        -r requirements.lock
COPY . .
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/compaction-proxy/bin/pip install --no-index --no-deps /wheels/*.whl \
    && /opt/build/bin/cyclonedx-py environment --output-reproducible \
        --output-file /opt/compaction-proxy/sbom.cdx.json /opt/compaction-proxy

FROM python:3.13-slim
RUN useradd --system --uid 8400 --no-create-home compaction-proxy \
    && install -d -m 0700 -o compaction-proxy /var/lib/compaction-proxy
COPY --from=build /opt/compaction-proxy /opt/compaction-proxy
COPY config.toml /etc/compaction-proxy/config.toml

# Inside a container loopback is nobody else's. What reaches other addresses is decided by -p, which
# is not known here: see above.
ENV COMPACTION_PROXY_LISTEN=0.0.0.0:8400 \
    PATH=/opt/compaction-proxy/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_STATE_HOME=/var/lib
USER compaction-proxy
VOLUME /var/lib/compaction-proxy
EXPOSE 8400

# http.client, because urllib would ask an HTTP_PROXY of the environment for loopback.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-c", "\
import http.client, sys; \
server = http.client.HTTPConnection('127.0.0.1', 8400, timeout=4); \
server.request('GET', '/livez'); \
sys.exit(server.getresponse().status != 200)"]

ENTRYPOINT ["compaction-proxy"]
CMD ["serve", "--config", "/etc/compaction-proxy/config.toml"]
