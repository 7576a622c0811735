// The offer and answer of a WebRTC connection over HTTP, and the candidates that follow. No media in here.

// WebRTC is not to be had here. Another way of connecting may be.
export class Unsupported extends Error {}

// The server was reached and says no. `name` is its code, as a DOMException's is its kind.
export class Refused extends Error {
  constructor({ code, message }) {
    super(message);
    this.name = code;
  }
}

// With the page's own ?token=.
function address(path, parameters = {}) {
  const url = new URL(path, location.href);
  url.search = location.search;
  Object.entries(parameters).forEach(([name, value]) => value && url.searchParams.set(name, value));
  return url;
}

async function ask(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  // Without an error of the server's own kind it was the route that is missing, or a proxy that does not know it. An
  // offer that the server cannot use is of no use a second time, and the WebSocket needs none.
  if (told.type !== "error" || told.code === "bad_offer") throw new Unsupported(`HTTP ${response.status}`);
  throw new Refused(told);
}

export class Signalling {
  resource = null; // the connection's own address at the server
  #waiting = []; // candidates that the server has not got yet
  #sending = false;

  async configuration() {
    return (await ask(address("/v1/webrtc/config"))).json();
  }

  async answer(offer, resume) {
    const headers = { "Content-Type": "application/sdp" };
    const response = await ask(address("/v1/webrtc/offer", { resume }), { method: "POST", headers, body: offer });
    this.resource = address(response.headers.get("Location"));
    return response.text();
  }

  // `description` holds the credentials that the candidates belong to; a null candidate is the last.
  candidate(candidate, description) {
    this.#waiting.push(candidate ? `a=${candidate.candidate}` : "a=end-of-candidates");
    this.send(description);
  }

  // What gathers while a request is under way goes together in the next.
  async send({ sdp }) {
    if (!this.resource || this.#sending) return;
    this.#sending = true;
    const headers = { "Content-Type": "application/trickle-ice-sdpfrag" };
    while (this.#waiting.length > 0) {
      const body = fragment(sdp, this.#waiting.splice(0));
      // A candidate that is lost may not be needed: whether the connection comes about is seen there.
      await fetch(this.resource, { method: "PATCH", headers, body }).catch(() => {});
    }
    this.#sending = false;
  }

  // Also while the page goes away.
  async hangUp() {
    const [resource, gone] = [this.resource, () => {}];
    this.resource = null;
    if (resource) await fetch(resource, { method: "DELETE", keepalive: true }).catch(gone);
  }
}

// RFC 8840 section 9. The first media section is the one whose transport all share.
function fragment(sdp, candidates) {
  const line = (start) => sdp.split(/\r?\n/).find((text) => text.startsWith(start));
  const head = ["a=ice-ufrag:", "a=ice-pwd:", "m=", "a=mid:"].map(line);
  return [...head, ...candidates, ""].join("\r\n");
}
