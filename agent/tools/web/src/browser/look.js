// Looks at a page as assistive technology does. Called as (what, …) by snapshot.rs and page.rs:
// "snapshot" [interactive only, most] -> { url, title, nodes: [{ role, name, element, … }], left }
// "describe" [elements] -> what each element is, for a person or a model
// "text" [] -> the text that can be seen, without blank lines
// "choose" [element, value] -> chooses an option, or says why not
const [what, first, second] = arguments;

const ROLES = {
  a: (e) => (e.hasAttribute('href') ? 'link' : ''), button: 'button', select: (e) => (e.multiple ? 'listbox' : 'combobox'),
  textarea: 'textbox', option: 'option', img: (e) => (e.getAttribute('alt') === '' ? '' : 'img'), summary: 'button',
  h1: 'heading', h2: 'heading', h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading',
  nav: 'navigation', main: 'main', aside: 'complementary', form: 'form', dialog: 'dialog', iframe: 'iframe',
  ul: 'list', ol: 'list', li: 'listitem', table: 'table', tr: 'row', td: 'cell', th: 'columnheader',
  p: 'paragraph', progress: 'progressbar', meter: 'meter', output: 'status', header: 'banner', footer: 'contentinfo',
};
const INPUTS = {
  button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio',
  range: 'slider', number: 'spinbutton', search: 'searchbox', hidden: '', file: 'file',
};
const INTERACTIVE = new Set(['link', 'button', 'textbox', 'searchbox', 'checkbox', 'radio', 'combobox', 'listbox', 'option',
  'slider', 'spinbutton', 'switch', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio', 'treeitem', 'file']);
// Roles whose name is what they hold; of others the words belong to the nodes within.
const NAMED_BY_CONTENT = new Set(['link', 'button', 'heading', 'option', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio',
  'cell', 'columnheader', 'rowheader', 'checkbox', 'radio', 'switch', 'treeitem', 'paragraph', 'status', 'alert', 'tooltip']);

const short = (text, most = 200) => {
  const plain = (text || '').replace(/\s+/g, ' ').trim();
  const points = Array.from(plain);
  return points.length > most ? points.slice(0, most - 1).join('') + '…' : plain;
};

function role(e) {
  const own = (e.getAttribute('role') || '').trim().split(/\s+/)[0];
  if (own) return own === 'none' || own === 'presentation' ? '' : own;
  const tag = e.localName;
  if (tag === 'input') return INPUTS[e.type] === undefined ? 'textbox' : INPUTS[e.type];
  const known = ROLES[tag];
  const found = typeof known === 'function' ? known(e) : known;
  if (found) return found;
  if (e.isContentEditable && !(e.parentElement && e.parentElement.isContentEditable)) return 'textbox';
  return e.hasAttribute('onclick') || (e.tabIndex >= 0 && e.hasAttribute('tabindex')) ? 'button' : '';
}

function visible(e) {
  if (e.closest('[aria-hidden="true"]') || e.closest('[inert]')) return false;
  if (e.localName === 'option') return true;
  return e.checkVisibility ? e.checkVisibility({ visibilityProperty: true }) : e.getClientRects().length > 0;
}

// The accessible name, in the order of the specification as far as pages use it.
function name(e, kind) {
  const ids = (e.getAttribute('aria-labelledby') || '').split(/\s+/).filter(Boolean);
  const labelled = ids.map((id) => e.getRootNode().getElementById(id)).filter(Boolean).map((l) => l.textContent).join(' ');
  if (short(labelled)) return short(labelled);
  if (short(e.getAttribute('aria-label'))) return short(e.getAttribute('aria-label'));
  if (e.labels && e.labels.length) return short(Array.from(e.labels).map((l) => words(l, e)).join(' '));
  if (e.localName === 'input' && ['button', 'submit', 'reset'].includes(e.type)) {
    return short(e.value) || { submit: 'Submit', reset: 'Reset', button: '' }[e.type];
  }
  if (e.hasAttribute('alt')) return short(e.getAttribute('alt'));
  if (NAMED_BY_CONTENT.has(kind)) {
    const inside = short(words(e));
    if (inside) return inside;
    const picture = e.querySelector('img[alt], [aria-label], svg title');
    if (picture) return short(picture.getAttribute('alt') || picture.getAttribute('aria-label') || picture.textContent);
  }
  const caption = e.querySelector(':scope > caption, :scope > legend, :scope > figcaption');
  return short(caption ? caption.textContent : '') || short(e.getAttribute('title')) || short(e.getAttribute('placeholder'));
}

// The words in an element, without those of the field that a label is for.
function words(e, without) {
  if (!without || !e.contains(without)) return e.innerText === undefined ? e.textContent : e.innerText;
  return Array.from(e.childNodes).filter((n) => n !== without)
    .map((n) => (n.nodeType === 3 ? n.data : n.nodeType === 1 ? words(n, without) : '')).join(' ');
}

function state(e, kind) {
  const found = {};
  if (['textbox', 'searchbox', 'spinbutton', 'slider', 'combobox'].includes(kind) && e.value) {
    found.value = e.type === 'password' ? '•••' : short(e.localName === 'select' ? (e.selectedOptions[0] || {}).text : e.value);
  }
  const checked = e.checked === undefined ? e.getAttribute('aria-checked') : String(e.checked);
  if (['checkbox', 'radio', 'switch'].includes(kind) && checked !== null) found.checked = checked === 'true';
  if (kind === 'option' && e.selected) found.selected = true;
  if (e.disabled || e.getAttribute('aria-disabled') === 'true') found.disabled = true;
  if (kind === 'heading') found.level = Number(e.getAttribute('aria-level') || e.localName.slice(1)) || undefined;
  if (e.hasAttribute('aria-expanded')) found.expanded = e.getAttribute('aria-expanded') === 'true';
  return found;
}

function snapshot(interactive, most) {
  const nodes = [];
  let left = 0;
  const walk = (parent) => {
    for (const e of parent.children) {
      if (['script', 'style', 'noscript', 'template', 'head'].includes(e.localName)) continue;
      const kind = visible(e) ? role(e) : '';
      if (kind && (!interactive || INTERACTIVE.has(kind))) {
        const called = name(e, kind);
        const says = called || INTERACTIVE.has(kind) || kind === 'iframe' || kind === 'dialog';
        if (says && nodes.length < most) nodes.push({ role: kind, name: called, ...state(e, kind), element: e });
        else if (says) left += 1;
      }
      if (e.shadowRoot) walk(e.shadowRoot);
      walk(e);
    }
  };
  if (document.body) walk(document);
  return { url: location.href, title: document.title, nodes, left };
}

function describe(elements) {
  return elements.map((e) => {
    const kind = role(e);
    const found = { tag: e.localName, role: kind || undefined, text: short(words(e), 500), ...state(e, kind) };
    for (const key of ['id', 'class', 'name', 'type', 'href', 'src', 'placeholder', 'aria-label']) {
      if (e.getAttribute(key)) found[key] = short(e.getAttribute(key));
    }
    if (!visible(e)) found.visible = false;
    return found;
  });
}

function choose(e, value) {
  const options = Array.from(e.options);
  const option = options.find((o) => o.value === value) || options.find((o) => short(o.text) === short(value));
  if (!option) return 'it has no option ' + JSON.stringify(value) + ', only: ' + options.slice(0, 30).map((o) => JSON.stringify(short(o.text))).join(', ');
  if (e.multiple) option.selected = true; else e.value = option.value;
  for (const type of ['input', 'change']) e.dispatchEvent(new Event(type, { bubbles: true }));
  return null;
}

switch (what) {
  case 'snapshot': return snapshot(first, second);
  case 'describe': return describe(first);
  case 'choose': return choose(first, second);
  default: return document.body ? document.body.innerText.replace(/[ \t]+/g, ' ').replace(/\s*\n\s*/g, '\n').trim() : '';
}
