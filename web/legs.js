// Listens to both legs of a call: the caller's microphone and the agent's voice as it leaves for the loudspeaker.

export const [CALLER, AGENT] = [0, 1]; // inputs of the node
export const SOUND = 0.003; // -50 dB of full scale: between replies the agent's leg has digital silence

// `onFrames` gets the {end, legs} of legs-worklet.js. A source is joined with source.connect(node, 0, CALLER).
export async function openLegs(context, onFrames) {
  await context.audioWorklet.addModule("legs-worklet.js");
  const node = new AudioWorkletNode(context, "legs", { numberOfInputs: 2, numberOfOutputs: 0 });
  node.port.onmessage = ({ data }) => onFrames(data);
  return node;
}
