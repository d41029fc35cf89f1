"""Chromium, driven; and the questions that tests ask of a page in it."""

import json
import shutil

import pytest


def chromium():
    """A headless Chromium with its driver, and nothing from the network; skips where this machine has none."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("capability browser: no Chromium with its driver on this machine")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


LATE = "#case=walks-gggg&implementation=late-1.0"  # a result that failed
NETWORK = ("requestWillBeSent", "loadingFailed")


class Browser:
    """A page in Chromium, asked in few words."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, file, fragment="", width=1280, height=900, **media):
        """Opens a file anew, in a window of this size; *media* are features as prefers_color_scheme="dark"."""
        said = {"prefers_color_scheme": "light", "prefers_reduced_motion": "reduce", **media}
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in said.items()]
        self.driver.get("about:blank")
        self.tell("Emulation.setEmulatedMedia", media="", features=features)
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.driver.get(file.as_uri() + fragment)

    def stay(self, file):
        """Opens a file unless it is open, for questions that change nothing."""
        if self.driver.current_url.partition("#")[0] != file.as_uri():
            self.show(file)

    def tell(self, command, **arguments):
        """A command of the browser's own protocol."""
        return self.driver.execute_cdp_cmd(command, arguments)

    def ask(self, expression, *arguments):
        """The value of an expression in the page; `$` and `$$` find elements, and `texts` what they say."""
        found = "const $ = (css) => document.querySelector(css), $$ = (css) => [...document.querySelectorAll(css)];"
        texts = "const texts = (css) => $$(css).map((node) => node.textContent);"
        return self.driver.execute_script(f"{found} {texts} return {expression}", *arguments)

    def open(self, case, implementation):
        """Opens the details of a result, and says how they read."""
        return self.ask(
            "open({case: arguments[0], implementation: arguments[1]}) ?? $('dialog').textContent", case, implementation
        )

    def click(self, css):
        """Clicks the first such element, as a hand does."""
        element = self.ask("$(arguments[0])", css)
        self.ask("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        element.click()

    def choose(self, css, value):
        """Sets a field as a hand does: by events."""
        change = "['input', 'change'].forEach((name) => field.dispatchEvent(new Event(name, {bubbles: true})))"
        self.ask(f"((field) => {{ field.value = arguments[1]; {change}; }})($(arguments[0]))", css, value)

    def press(self, *keys):
        """Presses keys, some of them together as "control+end", wherever the focus is."""
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            chord = [getattr(Keys, part.upper(), part) for part in key.split("+")]
            self.driver.switch_to.active_element.send_keys(*chord)

    def until(self, expression):
        """Waits for what happens a moment later, at most five seconds."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.ask(expression), expression)

    def until_closed(self):
        """Waits for the end of the details; what has the focus then."""
        self.until("!$('dialog').open && !Object.keys(opened).length")
        return self.focus()

    def focus(self):
        """What has the focus: the text that names it."""
        return self.ask("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")

    def facts(self):
        """The cases that the matrix shows."""
        return self.ask("$$('tr.case th button').map((button) => button.dataset.case)")

    def errors(self):
        """What the console has been told since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Every address that was asked for since this was last asked, save where the page's own policy stopped it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        named = {name: [one["params"] for one in events if one["method"] == f"Network.{name}"] for name in NETWORK}
        stopped = {one["requestId"] for one in named["loadingFailed"] if one.get("blockedReason") == "csp"}
        return [one["request"]["url"] for one in named["requestWillBeSent"] if one["requestId"] not in stopped]


def cell(case, implementation):
    return f'td [data-case="{case}"][data-implementation="{implementation}"]'


# For each text that is seen: the ratio of its contrast with the worst colour behind it, and where it is.
CONTRASTS = r"""(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    const linear = (part) => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const behind = (node) => {
    if (!node) return [["white"]];
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    const stripes = backgroundImage.match(/(rgba?|color)\([^)]*\)/g) ?? [];
    const layers = [[backgroundColor], ...stripes.map((stripe) => [backgroundColor, stripe])];
    return behind(node.parentElement).flatMap((below) => layers.map((own) => [...below, ...own]));
  };
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("dialog[open]") ?? document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || parent.closest(".unseen, script, style, option")) continue;
    const { fill, color } = getComputedStyle(parent);
    for (const layers of behind(parent)) {
      const [low, high] = [paint(layers), paint([...layers, parent instanceof SVGElement ? fill : color])].sort((a, b) => a - b);
      found.push([high / low, `${parent.tagName}.${parent.getAttribute("class")}: ${node.data.slice(0, 30)}`]);
    }
  }
  return found;
})()"""
