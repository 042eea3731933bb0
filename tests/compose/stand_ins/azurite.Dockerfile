# Stands in for tests/azurite/Dockerfile where npm's packages are at hand, but no image.
FROM open-mirroring-stand-in/base:local
COPY node /usr/local/bin/node
COPY azurite /opt/azurite
COPY start_from.js /opt/azurite/
RUN useradd --uid 1000 --create-home node && mkdir /data && chown node:node /data
