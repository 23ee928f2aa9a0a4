/* Browsers refuse workers to pages that were opened from the disk. There the search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.addEventListener("error", (error) => this.dispatchEvent(new ErrorEvent("error", { message: error.message })));
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      const load = (source) => new Promise((done, failed) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src: source, onload: done, onerror: failed });
        frame.contentDocument.head.append(script);
      });
      const ready = load(String(url));
      this.frame = frame;
      this.postMessage = (data) => ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    set onmessage(listener) { this.addEventListener("message", listener); }
    set onerror(listener) { this.addEventListener("error", listener); }
    terminate() { this.frame.remove(); }
  };
}
