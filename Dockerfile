# rlsdk for CPUs. Build and use it, in a copy of the repository:
#   make image
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/home/rlsdk/work" rlsdk run tqc --env Pendulum-v1 --steps 8000
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
# for the kernels that rlsdk-kernels compiles while it is installed
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# The package index with torch for CPUs, as torch's page on installing shows it. Without, torch brings its GPU libraries (GBs).
ARG TORCH_CPU_INDEX=""
ARG PACKAGES="plugins/rlsdk-ars plugins/rlsdk-datasets plugins/rlsdk-envs plugins/rlsdk-interchange plugins/rlsdk-kernels plugins/rlsdk-lab plugins/rlsdk-maskable-ppo plugins/rlsdk-parallel plugins/rlsdk-qrdqn plugins/rlsdk-recurrent-ppo plugins/rlsdk-sb3 plugins/rlsdk-tqc plugins/rlsdk-trpo contrib_algos/rlsdk-a2c contrib_algos/rlsdk-acer contrib_algos/rlsdk-acktr contrib_algos/rlsdk-bc contrib_algos/rlsdk-cql contrib_algos/rlsdk-crossq contrib_algos/rlsdk-ddpg contrib_algos/rlsdk-discrete-sac contrib_algos/rlsdk-dqn contrib_algos/rlsdk-gail contrib_algos/rlsdk-iql contrib_algos/rlsdk-ppo contrib_algos/rlsdk-pqn contrib_algos/rlsdk-sac contrib_algos/rlsdk-td3 contrib_algos/rlsdk-td3-bc"
WORKDIR /source
RUN python -m venv /opt/rlsdk
ENV PATH=/opt/rlsdk/bin:$PATH
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt ${TORCH_CPU_INDEX:+--index-url "$TORCH_CPU_INDEX"} torch
COPY . .
RUN for package in $PACKAGES; do set -- "$@" "./$package"; done \
 && pip install --no-cache-dir --constraint constraints.txt ".[demo]" "$@"

FROM python:${PYTHON}-slim
RUN useradd --create-home --uid 1000 rlsdk && install --directory --owner rlsdk --mode 777 /home/rlsdk/work
COPY --from=build /opt/rlsdk /opt/rlsdk
# no screen, and a home that any --user can write to
ENV PATH=/opt/rlsdk/bin:$PATH PYTHONUNBUFFERED=1 SDL_VIDEODRIVER=dummy MPLCONFIGDIR=/tmp
USER 1000
WORKDIR /home/rlsdk/work
ENTRYPOINT ["rlsdk"]
CMD ["--help"]
