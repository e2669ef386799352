# The image of docker-compose.yml: parsync with the example app. `parsync scheduler`, `celery worker` and `parsync serve` run in it.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore

# The dependencies by themselves (with those of `parsync serve`), so that a change of the code does not fetch them again.
COPY requirements-serve.lock /build/
RUN pip install --require-hashes --requirement /build/requirements-serve.lock

COPY pyproject.toml hatch_build.py README.md LICENSE /build/
COPY lua /build/lua
COPY parsync_redis /build/parsync_redis
RUN pip install --no-deps '/build[serve]' && rm -rf /build

RUN useradd --create-home --uid 10001 parsync
COPY examples /app/examples
WORKDIR /app
# By its number: Kubernetes cannot tell whether a user with a name is root, and the chart has `runAsNonRoot`.
USER 10001

CMD ["parsync", "--help"]
