# Stands in for apache/airflow: user 50000 of group 0, AIRFLOW_HOME, a Python with pip that comes first on the PATH.
FROM open-mirroring-stand-in/base:local
RUN useradd --uid 50000 --gid 0 --home-dir /opt/airflow airflow \
    && mkdir -p /opt/airflow/logs && chown -R 50000:0 /opt/airflow \
    && python3 -m venv /opt/venv && chown -R 50000:0 /opt/venv
ENV AIRFLOW_HOME=/opt/airflow \
    PATH=/opt/venv/bin:$PATH \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
USER 50000:0
