# Stands in for postgres: POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD at the first start, as user 999.
FROM open-mirroring-stand-in/base:local
RUN groupadd --gid 999 database && useradd --uid 999 --gid 999 database \
    && mkdir -p /var/lib/postgresql/data /var/run/postgresql \
    && chown -R 999:999 /var/lib/postgresql/data /var/run/postgresql \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/
COPY tests/compose/stand_ins/postgres-entrypoint /usr/local/bin/
USER 999:999
ENTRYPOINT ["postgres-entrypoint"]
