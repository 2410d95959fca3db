# docker build -t compaction-proxy .
# docker run -p 127.0.0.1:8400:8400 -v compaction-proxy:/var/lib/compaction-proxy \
#     -e COMPACTION_PROXY_UPSTREAM=http://host.docker.internal:8080 compaction-proxy
#
# A config.toml of your own is mounted over the default one:
#     -v ./config.toml:/etc/compaction-proxy/config.toml:ro

FROM python:3.13-slim AS build
RUN python -m venv /opt/compaction-proxy
WORKDIR /src
COPY . .
RUN /opt/compaction-proxy/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --system --uid 8400 --no-create-home compaction-proxy \
    && install -d -m 0700 -o compaction-proxy /var/lib/compaction-proxy
COPY --from=build /opt/compaction-proxy /opt/compaction-proxy
COPY config.toml /etc/compaction-proxy/config.toml

# Inside a container loopback is nobody else's: what reaches it is decided by -p.
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
