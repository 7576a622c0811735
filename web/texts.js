// What the page says: states of a turn, ways of connecting, and faults in words that tell what to do.

export const STATES = {
  idle: "Not in a call",
  connecting: "Connecting…",
  reconnecting: "Reconnecting…",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking…",
  speaking: "Speaking",
  error: "Call ended",
};

export const LINES = {
  none: ["Not connected", ""],
  opening: ["Connecting", ""],
  webrtc: ["WebRTC", "Sound travels over UDP."],
  websocket: ["WebSocket", "Sound travels over TCP, since WebRTC could not be used. Delays may be longer."],
};

const NOT_READY = "The server is still loading its models. Try again in a moment.";
const REFUSED =
  "The server refused this page. If it was started with a token, add ?token=… to the address; one for a short time may be over.";
const UNREACHABLE = "The server cannot be reached. Is it running?";

export const FAULTS = {
  NotAllowedError: "The microphone is blocked. Allow it for this page in the browser, or type a question.",
  NotFoundError: "No microphone was found. Connect one and start again, or type a question.",
  NotReadableError: "Another program is using the microphone.",
  AbortError: UNREACHABLE, // a worklet did not load
  not_ready: NOT_READY,
  too_many_sessions: "The server has no room for another conversation. Try again later.",
  too_many_attempts: "Too many attempts. Try again in a minute.",
  bad_token: REFUSED,
  bad_host: REFUSED,
  bad_origin: REFUSED,
  resumed_elsewhere: "This conversation goes on in another window.",
};

export const INSECURE = "The browser gives a page the microphone only on https or on localhost.";
export const LOST = "The connection to the server was lost. Start again to reconnect.";
export const DROPPED = "The connection to the server was lost. Press “Reconnect” to go on with this conversation.";
export const CONNECTED = "Connected. You may speak.";
export const UNPLUGGED = "The microphone was disconnected. Choose another below, or type.";
export const FORGOTTEN = "The server no longer has the earlier conversation: this is a new one.";
export const FALLEN_BACK = "WebRTC did not get through, so this call goes over WebSocket.";

// Why no connection came about, or null when the server is well. A browser hides why a WebSocket was refused.
export function health() {
  return fetch("/health").then(
    ({ ok }) => (ok ? REFUSED : NOT_READY),
    () => UNREACHABLE,
  );
}

export { UNREACHABLE };
