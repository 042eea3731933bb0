# One image for every Python service of docker-compose.yaml: Airflow, Spark, the emulator.
# A base of your own needs Python 3.11 or 3.12 with pip, user 50000 with a home, AIRFLOW_HOME=/opt/airflow that this
# user owns; site certificates and package mirrors belong there too.
ARG BASE_IMAGE=apache/airflow:3.3.2-python3.11
FROM ${BASE_IMAGE}

USER root
RUN command -v java >/dev/null \
    || (apt-get update && apt-get install --yes --no-install-recommends default-jre-headless \
        && rm -rf /var/lib/apt/lists/*)
WORKDIR /opt/open-mirroring
RUN mkdir build certificates && chown -R 50000:0 .

USER 50000:0
COPY --chown=50000:0 requirements.lock ./
RUN python -m pip install --no-cache-dir --no-deps --require-hashes --requirement requirements.lock
COPY --chown=50000:0 jars jars
RUN jars/fetch python \
    && ln -s "$(python -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("pyspark").origin))')" spark
COPY --chown=50000:0 . .
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation --editable . --editable testing \
    && python -m compileall -q open_mirroring spark_jobs plugins dags

# What is in this image, for whoever has to answer for it: sbom.json (CycloneDX). Its maker stays outside.
RUN python -m venv build/sbom \
    && build/sbom/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement deploy/sbom-requirements.lock \
    && build/sbom/bin/cyclonedx-py environment "$(command -v python)" --output-reproducible --output-file sbom.json \
    && rm -rf build/sbom

ENV OPEN_MIRRORING_HOME=/opt/open-mirroring \
    SPARK_HOME=/opt/open-mirroring/spark \
    PYSPARK_PYTHON=python \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/open-mirroring/dags
