# Stands in for apache/kafka: KAFKA_… variables become server.properties, the storage is formatted once, as user 1000.
FROM open-mirroring-stand-in/base:local
RUN useradd --uid 1000 --create-home appuser && mkdir -p /var/lib/kafka/data && chown -R 1000 /var/lib/kafka
COPY jars/broker/*.jar /opt/kafka/libs/
COPY tests/compose/stand_ins/kafka-entrypoint /usr/local/bin/
USER 1000
ENTRYPOINT ["kafka-entrypoint"]
