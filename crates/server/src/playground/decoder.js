// The decoder picker: a preset of the served model, and settings that override it.

const POLICIES = { schedule: "schedules", commit: "commits", cache: "caches" };

function option(value, text, title) {
  const element = new Option(text, value);
  if (title) element.title = title;
  return element;
}

/** A typed setting as a number, a flag or a name. */
function parse(text) {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** A picker made from the template `decoder`. */
export class DecoderPicker {
  #root;
  #offers = null;
  #preset;
  #policies = {};
  #fields;

  constructor(template, legend) {
    this.#root = template.content.firstElementChild.cloneNode(true);
    this.#root.querySelector("legend").textContent = legend;
    this.#preset = this.#root.querySelector("[name=preset]");
    this.#fields = this.#root.querySelector(".fields");
    for (const name of Object.keys(POLICIES)) {
      this.#policies[name] = this.#root.querySelector(`[name=${name}]`);
      this.#policies[name].addEventListener("change", () => this.#show());
    }
    this.#preset.addEventListener("change", () => this.#show());
  }

  get element() {
    return this.#root;
  }

  /** Offers the presets and settings of the model's `diffusion`; selects `preset` if it exists. */
  offer(diffusion, preset) {
    this.#offers = diffusion;
    const presets = Object.keys(diffusion.presets);
    const server = option("", "the server's default");
    this.#preset.replaceChildren(server, ...presets.map((name) => option(name, name)));
    if (presets.includes(preset)) this.#preset.value = preset;
    for (const [name, list] of Object.entries(POLICIES)) {
      const options = diffusion[list].map((offer) => {
        const element = option(offer.name, offer.name, offer.unavailable ?? offer.summary);
        element.disabled = Boolean(offer.unavailable);
        return element;
      });
      this.#policies[name].replaceChildren(option("", "from the preset"), ...options);
    }
    this.#show();
  }

  /** Chooses the settings of a `diffusion` object; one that the model lacks is left out. */
  take(settings) {
    const set = (control) => {
      if (control && control.name in settings) control.value = settings[control.name];
    };
    set(this.#preset);
    Object.values(this.#policies).forEach(set);
    this.#show();
    this.#fields.querySelectorAll("input").forEach(set);
  }

  /** The `diffusion` object of a request; undefined if it would be empty. */
  get value() {
    const settings = {};
    for (const control of this.#root.querySelectorAll("select, input")) {
      if (control.value !== "") settings[control.name] = parse(control.value);
    }
    return Object.keys(settings).length > 0 ? settings : undefined;
  }

  /** Its name in a race. */
  get name() {
    const { preset, ...rest } = this.value ?? {};
    const settings = Object.entries(rest).map(([name, value]) => `${name}=${value}`);
    return [preset ?? "default", ...settings].join(", ");
  }

  /** Shows the preset's settings, and a field for every setting that the policies read. */
  #show() {
    const preset = this.#offers.presets[this.#preset.value] ?? {};
    const told = Object.entries(preset).map(([name, value]) => `${name} ${value}`);
    this.#root.querySelector(".settings").textContent = told.join(" · ");
    const names = new Set();
    for (const [policy, list] of Object.entries(POLICIES)) {
      const chosen = this.#policies[policy].value || preset[policy];
      const offer = this.#offers[list].find(({ name }) => name === chosen);
      this.#policies[policy].title = offer?.summary ?? "";
      for (const setting of offer?.settings ?? []) names.add(setting);
    }
    const typed = new Map();
    for (const input of this.#fields.querySelectorAll("input")) typed.set(input.name, input.value);
    const fields = [...names].map((name) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { name, autocomplete: "off", spellcheck: false });
      input.value = typed.get(name) ?? "";
      input.placeholder = preset[name] ?? "";
      label.append(name, input);
      return label;
    });
    this.#fields.replaceChildren(...fields);
  }
}
